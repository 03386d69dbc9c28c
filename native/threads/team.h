// How many threads a run should use, judged by how long they waited for one another.
//
// Threads that meet at every phase are as fast as the slowest of them. If another process takes a
// core, the thread on it makes all others wait, and fewer threads are faster than all. So a team
// shrinks when waiting takes a large share of its time, and tries to grow again after a while; each
// attempt that fails doubles the while. Results do not depend on the number of threads.
#pragma once
#include <chrono>

namespace outrider {

class Team {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::nanoseconds;

  explicit Team(int most) : most_(most < 1 ? 1 : most), size_(most_) {}

  int most() const { return most_; }
  // Threads for a run that begins now.
  int size(Clock::time_point now) {
    if (size_ < most_ && now >= grow_at_) {
      size_++;
      trying_ = true;
      forget();
    }
    return size_;
  }
  // A run of size() threads took so long, in which all of them together waited so long.
  void note(Clock::time_point now, Duration took, Duration waited) {
    if (size_ == 1) return;
    took_ += took;
    waited_ += waited / (size_ - 1);  // one slow thread makes all others wait
    if (took_ < WINDOW) return;
    if (waited_ * 10 > took_ * SHARE) {
      hold_ = trying_ ? hold_ * 2 : FIRST_HOLD;
      if (hold_ > LAST_HOLD) hold_ = LAST_HOLD;
      size_--;
      grow_at_ = now + hold_;
    } else {
      grow_at_ = now + (trying_ ? FIRST_HOLD : hold_);
    }
    trying_ = false;
    forget();
  }

 private:
  static constexpr Duration WINDOW = std::chrono::milliseconds(8);
  static constexpr Duration FIRST_HOLD = std::chrono::milliseconds(50);
  static constexpr Duration LAST_HOLD = std::chrono::milliseconds(400);
  static constexpr int SHARE = 3;  // tenths of the time

  void forget() { took_ = waited_ = Duration{0}; }

  int most_;
  int size_;
  bool trying_ = false;
  Duration took_{0}, waited_{0}, hold_ = FIRST_HOLD;
  Clock::time_point grow_at_{};
};

}  // namespace outrider
