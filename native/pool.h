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
  // Take a run of `total` equal items. Every thread starts with its own first_run; then it takes
  // half of a thread's share of what is left: long runs first, since starting in cold memory costs,
  // short ones last, so that nobody waits long for a slow neighbour.
  bool take_run(int total, int& low, int& high);
  // Items [low, high) that take_run gives this thread first: half of a fair share.
  void first_run(int total, int& low, int& high) const;
  // Wait for every thread; starts the next phase.
  void meet(const Ahead& ahead = {});

 private:
  Pool& pool_;
  int id_;
  int size_;
  unsigned phase_ = 0;
  bool begun_ = false;  // whether this phase's first run is taken
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
  // A phase's counter is zeroed two phases ahead, by the last thread to arrive at a meeting: nobody
  // can touch it then, since the phase between has not begun.
  static constexpr unsigned COUNTERS = 4;
  struct alignas(64) Counter {
    std::atomic<int> next{0};
  };

  void serve(int id);
  void arrive(unsigned phase, int size, const Ahead& ahead);

  Team team_;
  Counter counters_[COUNTERS];
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
