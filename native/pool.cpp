#include "pool.h"

#include <sched.h>

namespace outrider {
namespace {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spin for some microseconds, then give the core away a few times, then sleep. With a core per
// thread the first step suffices; with a busy neighbour the others keep both sides moving.
void await(const std::atomic<uint32_t>& word, uint32_t old, int spins, int yields) {
  for (int i = 0; i < spins; i++) {
    if (word.load(std::memory_order_acquire) != old) return;
    relax();
  }
  for (int i = 0; i < yields; i++) {
    if (word.load(std::memory_order_acquire) != old) return;
    sched_yield();
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

}  // namespace

int Worker::size() const { return pool_.size_; }

bool Worker::take(int total, int chunk, int& low, int& high) {
  std::atomic<int>& next = pool_.counters_[phase_ % Pool::COUNTERS].next;
  low = next.fetch_add(chunk, std::memory_order_relaxed);
  if (low >= total) return false;
  high = low + chunk < total ? low + chunk : total;
  return true;
}

void Worker::first_run(int total, int& low, int& high) const {
  const int run = total / (2 * pool_.size());
  low = id_ * run;
  high = low + run;
}

bool Worker::take_run(int total, int& low, int& high) {
  if (!begun_) {
    begun_ = true;
    first_run(total, low, high);
    if (low < high) return true;
  }
  std::atomic<int>& next = pool_.counters_[phase_ % Pool::COUNTERS].next;
  const int base = total / (2 * pool_.size()) * pool_.size();  // past every thread's first run
  const int least = total / (16 * pool_.size()) + 1;
  low = base + next.load(std::memory_order_relaxed);
  do {
    if (low >= total) return false;
    const int run = (total - low) / (2 * pool_.size());
    high = low + (run < least ? least : run);
    high = high < total ? high : total;
    int taken = low - base;
    if (next.compare_exchange_weak(taken, high - base, std::memory_order_relaxed)) return true;
    low = base + taken;
  } while (true);
}

void Worker::meet(const Ahead& ahead) {
  begun_ = false;
  pool_.arrive(phase_++, ahead);
}

Pool::Pool(int threads) : size_(threads < 1 ? 1 : threads) {
  for (int id = 1; id < size_; id++) threads_.emplace_back([this, id] { serve(id); });
}

Pool::~Pool() {
  stopping_.store(true, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Pool::arrive(unsigned phase, const Ahead& ahead) {
  const uint32_t generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    arrived_.store(0, std::memory_order_relaxed);
    counters_[(phase + 2) % COUNTERS].next.store(0, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  } else {
    for (int part = 0; part < 2; part++)
      for (size_t i = 0; i < ahead.bytes[part]; i += 64) __builtin_prefetch(ahead.data[part] + i, 0, 2);
    await(generation_, generation, 2000, 50);
  }
}

void Pool::run(const std::function<void(Worker&)>& function) {
  for (Counter& counter : counters_) counter.next.store(0, std::memory_order_relaxed);
  function_ = &function;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  Worker worker(*this, 0);
  function(worker);
  worker.meet();
}

void Pool::serve(int id) {
  uint32_t seen = 0;
  while (true) {
    await(epoch_, seen, 2000, 20);
    seen++;
    if (stopping_.load(std::memory_order_acquire)) return;
    Worker worker(*this, id);
    (*function_)(worker);
    worker.meet();
  }
}

}  // namespace outrider
