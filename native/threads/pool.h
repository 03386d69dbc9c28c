// Persistent threads that run one function together and meet between its phases.
#pragma once
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "threads/team.h"

namespace outrider {

constexpr int ITEM_BITS = 20;
constexpr uint64_t MOST_ITEMS = uint64_t{1} << ITEM_BITS;  // of one thread's share in a phase

class Pool;

// Memory that a thread will read next: asked for while it waits.
struct Ahead {
  const uint8_t* data[2] = {nullptr, nullptr};
  size_t bytes[2] = {0, 0};
};

// One thread's view of the running function. A function is a sequence of phases: in each, threads
// take pieces until none is left, then meet. Which thread computes a piece never matters.
class Worker {
 public:
  Worker(Pool& pool, int id, int size, uint32_t phase) : pool_(pool), id_(id), size_(size), phase_(phase) {}
  int id() const { return id_; }
  int size() const { return size_; }
  uint32_t phase() const { return phase_; }
  // Take the next piece [low, high) of `total` items, at most `chunk` of them.
  bool take(int total, int chunk, int& low, int& high);
  // Take a run of `total` equal items: from the front of this thread's own share, then from the back
  // of another's. A run is a quarter of what is left there: a share is read in order, so that only
  // runs taken from others start in cold memory, and nobody waits long for a slow neighbour.
  bool take_run(int total, int& low, int& high);
  // This thread's own share [low, high) of `total` items, the same in every phase.
  void share(int total, int& low, int& high) const { share_of(total, id_, low, high); }
  // Wait for every thread; starts the next phase.
  void meet(const Ahead& ahead = {});

 private:
  void share_of(int total, int id, int& low, int& high) const;

  Pool& pool_;
  int id_;
  int size_;
  uint32_t phase_;  // of all runs together
};

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int size() const { return team_.most(); }
  // Whether this is a forked child of the process that has the threads: it has none of them.
  bool forked() const { return getpid() != process_; }
  // Run on the team's threads, the caller's included, and return when all are done.
  void run(const std::function<void(Worker&)>& function);

 private:
  friend class Worker;
  // What one thread tells the others. It lies in a cache line that mostly this thread writes: on many
  // processors a line that another core wrote takes as long to come as memory.
  struct alignas(64) Seat {
    std::atomic<uint32_t> arrived{0};  // phases that the thread has left behind
    std::atomic<uint64_t> runs{0};     // taken of its share; see Runs in pool.cpp
  };

  void serve(int id);
  void arrive(int id, int size, uint32_t phase, const Ahead& ahead);

  pid_t process_;
  Team team_;
  std::vector<Seat> seats_;
  alignas(64) std::atomic<uint64_t> pieces_{0};  // taken in a phase, whose number is above them
  std::atomic<int64_t> waited_{0};               // nanoseconds of the run's threads together
  // A run's number, then its threads in the low byte: who reads it knows at once whether to join.
  alignas(64) std::atomic<uint32_t> epoch_{0};
  std::atomic<bool> stopping_{false};
  const std::function<void(Worker&)>* function_ = nullptr;
  uint32_t phase_ = 0;  // of the next run's first phase
  int seated_ = 0;      // threads of the last run
  std::vector<std::thread> threads_;
};

}  // namespace outrider
