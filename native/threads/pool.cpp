#include "threads/pool.h"

#include <sched.h>

#include <chrono>

#include "memory/prefetch.h"
#include "threads/float_mode.h"

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

// Spin for some microseconds, then give the core away again and again for a while, then sleep, until
// `done` of the word. With a core per thread the first step suffices; with a busy neighbour the others
// keep both sides moving. Returns how long it took after the spinning.
template <class Done>
Team::Duration await(const std::atomic<uint32_t>& word, microseconds patience, Done done) {
  for (int i = 0; i < SPINS; i++) {
    if (done(word.load(std::memory_order_acquire))) return {};
    relax();
  }
  const auto start = Team::Clock::now();
  auto now = start;
  for (; now - start < patience; now = Team::Clock::now()) {
    if (done(word.load(std::memory_order_acquire))) return now - start;
    sched_yield();
  }
  uint32_t seen;
  while (!done(seen = word.load(std::memory_order_acquire))) word.wait(seen, std::memory_order_acquire);
  return Team::Clock::now() - start;
}

// Items taken of a share in one phase, in one word: from its front, from its back, and the phase. A
// word of an earlier phase means that none is taken, so nobody needs to clear it. Matrices have fewer
// than MOST_ITEMS tiles; no pass has as many rows.
struct Runs {
  static constexpr int BITS = ITEM_BITS;

  static uint64_t of(uint64_t word, uint32_t phase) {
    const uint64_t tag = static_cast<uint64_t>(phase) << 2 * BITS;
    return (word ^ tag) >> 2 * BITS ? tag : word;
  }
  static int front(uint64_t word) { return static_cast<int>(word & (MOST_ITEMS - 1)); }
  static int back(uint64_t word) { return static_cast<int>(word >> BITS & (MOST_ITEMS - 1)); }
};

}  // namespace

bool Worker::take(int total, int chunk, int& low, int& high) {
  std::atomic<uint64_t>& pieces = pool_.pieces_;
  const uint64_t tag = static_cast<uint64_t>(phase_) << 32;
  uint64_t seen = pieces.load(std::memory_order_relaxed), now;
  do {
    now = (seen ^ tag) >> 32 ? tag : seen;
    low = static_cast<int>(now - tag);
    if (low >= total) return false;
    high = low + chunk < total ? low + chunk : total;
  } while (!pieces.compare_exchange_weak(seen, tag + high, std::memory_order_relaxed));
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
    std::atomic<uint64_t>& word = pool_.seats_[owner].runs;
    uint64_t seen = word.load(std::memory_order_relaxed);
    while (true) {
      const uint64_t now = Runs::of(seen, phase_);
      const int front = first + Runs::front(now), back = last - Runs::back(now);
      if (front >= back) break;
      const int run = (back - front + 3) / 4;
      const uint64_t then = now + (static_cast<uint64_t>(run) << (k == 0 ? 0 : Runs::BITS));
      if (!word.compare_exchange_weak(seen, then, std::memory_order_relaxed)) continue;
      low = k == 0 ? front : back - run;
      high = low + run;
      return true;
    }
  }
  return false;
}

void Worker::meet(const Ahead& ahead) { pool_.arrive(id_, size_, ++phase_, ahead); }

Pool::Pool(int threads)
    : process_(getpid()), team_(threads < MOST_THREADS ? threads : MOST_THREADS), seats_(team_.most()) {
  for (int id = 1; id < size(); id++) threads_.emplace_back([this, id] { serve(id); });
}

Pool::~Pool() {
  if (forked()) {
    for (std::thread& thread : threads_) thread.detach();
    return;
  }
  stopping_.store(true, std::memory_order_release);
  epoch_.fetch_add(NEXT_RUN, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Every thread waits for every other's own word: each crosses from core to core once.
void Pool::arrive(int id, int size, uint32_t phase, const Ahead& ahead) {
  // As in run.
  seats_[id].arrived.store(phase, std::memory_order_seq_cst);
  seats_[id].arrived.notify_all();
  const auto reached = [phase](uint32_t arrived) { return static_cast<int32_t>(arrived - phase) >= 0; };
  bool asked = false;
  Team::Duration waited{};
  for (int k = 1; k < size; k++) {
    const std::atomic<uint32_t>& other = seats_[(id + k) % size].arrived;
    if (reached(other.load(std::memory_order_acquire))) continue;
    if (!asked)
      for (int part = 0; part < 2; part++) ask_for(ahead.data[part], ahead.bytes[part]);
    asked = true;
    waited += await(other, MEETING, reached);
  }
  if (waited.count()) waited_.fetch_add(waited.count(), std::memory_order_relaxed);
}

void Pool::run(const std::function<void(Worker&)>& function) {
  const auto start = Team::Clock::now();
  const int size = team_.size(start);
  // Who sat out the last run does not know how far the others are.
  for (int id = seated_; id < size; id++) {
    seats_[id].arrived.store(phase_, std::memory_order_relaxed);
    seats_[id].runs.store(0, std::memory_order_relaxed);
  }
  seated_ = size;
  function_ = &function;
  waited_.store(0, std::memory_order_relaxed);
  const uint32_t run = epoch_.load(std::memory_order_relaxed) / NEXT_RUN + 1;
  // In one order with the sleepers' own checks, so that none is missed.
  epoch_.store(run * NEXT_RUN + static_cast<uint32_t>(size), std::memory_order_seq_cst);
  if (size > 1) epoch_.notify_all();
  Worker worker(*this, 0, size, phase_);
  function(worker);
  worker.meet();
  phase_ = worker.phase();
  const auto end = Team::Clock::now();
  team_.note(end, end - start, Team::Duration(waited_.load(std::memory_order_relaxed)));
}

void Pool::serve(int id) {
  const FloatMode mode;
  uint32_t seen = 0;
  while (true) {
    await(epoch_, BETWEEN_CALLS, [seen](uint32_t epoch) { return epoch != seen; });
    // A run that needs this thread cannot end without it, so such a run is never missed.
    seen = epoch_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_acquire)) return;
    const int size = static_cast<int>(seen % NEXT_RUN);
    if (id >= size) {
      // Only a run that needs more than one thread notifies: until then this one stays out of the way.
      epoch_.wait(seen, std::memory_order_acquire);
      continue;
    }
    Worker worker(*this, id, size, phase_);
    (*function_)(worker);
    worker.meet();
  }
}

}  // namespace outrider
