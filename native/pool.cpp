#include "pool.h"

#include "format.h"

#include <sched.h>

#include <chrono>

namespace outrider {
namespace {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

using std::chrono::microseconds;

constexpr uint32_t NEXT_RUN = 256;
constexpr int MOST_THREADS = NEXT_RUN - 1;
constexpr int SPINS = 2000;
// Others are about to arrive, unless the system took their core away.
constexpr microseconds MEETING{50};
// Between two calls of a round the caller prepares the next one; waking a sleeper costs more than that.
constexpr microseconds BETWEEN_CALLS{1000};

// Spin for some microseconds, then give the core away again and again for a while, then sleep. With a
// core per thread the first step suffices; with a busy neighbour the others keep both sides moving.
// Returns how long it took after the spinning.
Team::Duration await(const std::atomic<uint32_t>& word, uint32_t old, microseconds patience) {
  for (int i = 0; i < SPINS; i++) {
    if (word.load(std::memory_order_acquire) != old) return {};
    relax();
  }
  const auto start = Team::Clock::now();
  auto now = start;
  for (; now - start < patience; now = Team::Clock::now()) {
    if (word.load(std::memory_order_acquire) != old) return now - start;
    sched_yield();
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
  return Team::Clock::now() - start;
}

}  // namespace

bool Worker::take(int total, int chunk, int& low, int& high) {
  low = pool_.taken(phase_, 0).pieces.fetch_add(chunk, std::memory_order_relaxed);
  if (low >= total) return false;
  high = low + chunk < total ? low + chunk : total;
  return true;
}

void Worker::share_of(int total, int id, int& low, int& high) const {
  low = static_cast<int>(static_cast<int64_t>(total) * id / size_);
  high = static_cast<int>(static_cast<int64_t>(total) * (id + 1) / size_);
}

bool Worker::take_run(int total, int& low, int& high) {
  for (int k = 0; k < size_; k++) {
    const int owner = (id_ + k) % size_;
    int first, last;
    share_of(total, owner, first, last);
    std::atomic<uint64_t>& runs = pool_.taken(phase_, owner).runs;
    uint64_t seen = runs.load(std::memory_order_relaxed);
    while (true) {
      const int front = first + static_cast<int>(seen & 0xffffffff), back = last - static_cast<int>(seen >> 32);
      if (front >= back) break;
      const int run = (back - front + 3) / 4;
      const uint64_t then = seen + (static_cast<uint64_t>(run) << (k == 0 ? 0 : 32));
      if (!runs.compare_exchange_weak(seen, then, std::memory_order_relaxed)) continue;
      low = k == 0 ? front : back - run;
      high = low + run;
      return true;
    }
  }
  return false;
}

void Worker::meet(const Ahead& ahead) { pool_.arrive(phase_++, size_, ahead); }

Pool::Pool(int threads)
    : team_(threads < MOST_THREADS ? threads : MOST_THREADS), taken_(PHASES * team_.most()) {
  for (int id = 1; id < size(); id++) threads_.emplace_back([this, id] { serve(id); });
}

Pool::~Pool() {
  stopping_.store(true, std::memory_order_release);
  epoch_.fetch_add(NEXT_RUN, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Pool::forget(unsigned phase) {
  for (int id = 0; id < size(); id++) {
    taken(phase, id).pieces.store(0, std::memory_order_relaxed);
    taken(phase, id).runs.store(0, std::memory_order_relaxed);
  }
}

void Pool::arrive(unsigned phase, int size, const Ahead& ahead) {
  const uint32_t generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
    arrived_.store(0, std::memory_order_relaxed);
    forget(phase + 2);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  } else {
    for (int part = 0; part < 2; part++) ask_for(ahead.data[part], ahead.bytes[part]);
    const Team::Duration waited = await(generation_, generation, MEETING);
    if (waited.count()) waited_.fetch_add(waited.count(), std::memory_order_relaxed);
  }
}

void Pool::run(const std::function<void(Worker&)>& function) {
  const auto start = Team::Clock::now();
  const int size = team_.size(start);
  for (unsigned phase = 0; phase < PHASES; phase++) forget(phase);
  function_ = &function;
  waited_.store(0, std::memory_order_relaxed);
  const uint32_t run = epoch_.load(std::memory_order_relaxed) / NEXT_RUN + 1;
  epoch_.store(run * NEXT_RUN + static_cast<uint32_t>(size), std::memory_order_release);
  if (size > 1) epoch_.notify_all();
  Worker worker(*this, 0, size);
  function(worker);
  worker.meet();
  const auto end = Team::Clock::now();
  team_.note(end, end - start, Team::Duration(waited_.load(std::memory_order_relaxed)));
}

void Pool::serve(int id) {
  uint32_t seen = 0;
  while (true) {
    await(epoch_, seen, BETWEEN_CALLS);
    // A run that needs this thread cannot end without it, so such a run is never missed.
    seen = epoch_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_acquire)) return;
    const int size = static_cast<int>(seen % NEXT_RUN);
    if (id >= size) {
      // Only a run that needs more than one thread notifies: until then this one stays out of the way.
      epoch_.wait(seen, std::memory_order_acquire);
      continue;
    }
    Worker worker(*this, id, size);
    (*function_)(worker);
    worker.meet();
  }
}

}  // namespace outrider
