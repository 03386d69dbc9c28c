// The floating-point mode in which results are defined: rounding to nearest, nothing flushed to zero.
#pragma once
#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace outrider {

// Sets the mode for the calling thread, and its old one again at the end. A library may have changed
// it, and a new thread starts with that of the thread that made it: outputs would depend on who
// computed them.
class FloatMode {
 public:
  FloatMode(const FloatMode&) = delete;
#if defined(__x86_64__)
  FloatMode() : before_(_mm_getcsr()) { _mm_setcsr(DEFAULT); }
  ~FloatMode() { _mm_setcsr(before_); }

 private:
  static constexpr unsigned DEFAULT = 0x1f80;  // every exception masked, all other bits clear
  unsigned before_;
#else
  FloatMode() {
    fegetenv(&before_);
    fesetenv(FE_DFL_ENV);
  }
  ~FloatMode() { fesetenv(&before_); }

 private:
  fenv_t before_;
#endif
};

}  // namespace outrider
