// Asking for memory before it is used. It changes when a result comes, never what it is.
#pragma once
#include <cstddef>
#include <cstdint>

namespace outrider {

// Ask for memory that is read soon, into the second cache. Always inlined: GCC takes a function that
// does nothing else for one without effect and drops the calls.
[[gnu::always_inline]] inline void ask_for(const uint8_t* p, size_t bytes) {
#pragma GCC unroll 9
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

// Ask for memory that is written soon. If another core wrote it last, it takes as long to come as from
// memory, and stores would wait for it one after another.
[[gnu::always_inline]] inline void ask_to_write(const void* p, size_t bytes) {
  const char* at = static_cast<const char*>(p);
  for (size_t i = 0; i < bytes; i += 64) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(at[i]));  // does nothing on processors without it
#else
    __builtin_prefetch(at + i, 1, 3);
#endif
  }
}

}  // namespace outrider
