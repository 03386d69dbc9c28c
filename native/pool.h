// Persistent threads that run one function together and meet between its phases.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "team.h"

namespace outrider {

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
  Worker(Pool& pool, int id, int size) : pool_(pool), id_(id), size_(size) {}
  int id() const { return id_; }
  int size() const { return size_; }
  // Take the next piece [low, high) of `total` items, at most `chunk` of them.
  bool take(int total, int chunk, int& low, int& high);
  // Take a run of `total` equal items: from the front of this thread's own share, then from the back
  // of another's. A run is a quarter of what is left there: a share is read in order, so that only
  // runs taken from others start in cold memory, and nobody waits long for a slow neighbour.
  bool take_run(int total, int& low, int& high);
  // This thread's own share [low, high) of `total` items.
  void share(int total, int& low, int& high) const { share_of(total, id_, low, high); }
  // Wait for every thread; starts the next phase.
  void meet(const Ahead& ahead = {});

 private:
  void share_of(int total, int id, int& low, int& high) const;

  Pool& pool_;
  int id_;
  int size_;
  unsigned phase_ = 0;
};

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int size() const { return team_.most(); }
  // Run on the team's threads, the caller's included, and return when all are done.
  void run(const std::function<void(Worker&)>& function);

 private:
  friend class Worker;
  // Items taken in one phase. They are zeroed two phases ahead, by the last thread to arrive at a
  // meeting: nobody can touch them then, since the phase between has not begun.
  static constexpr unsigned PHASES = 4;
  struct alignas(64) Taken {
    std::atomic<int> pieces{0};
    std::atomic<uint64_t> runs{0};  // of one thread's share: from its front, and from its back << 32
  };

  // Of a thread in a phase; pieces are counted at the first thread.
  Taken& taken(unsigned phase, int id) { return taken_[phase % PHASES * team_.most() + id]; }
  void forget(unsigned phase);

  void serve(int id);
  void arrive(unsigned phase, int size, const Ahead& ahead);

  Team team_;
  std::vector<Taken> taken_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  std::atomic<int64_t> waited_{0};  // nanoseconds of the run's threads together
  // A run's number, then its threads in the low byte: who reads it knows at once whether to join.
  alignas(64) std::atomic<uint32_t> epoch_{0};
  std::atomic<bool> stopping_{false};
  const std::function<void(Worker&)>* function_ = nullptr;
  std::vector<std::thread> threads_;
};

}  // namespace outrider
