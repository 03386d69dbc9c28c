// Pages of cached keys and values with the memory they live in.
#pragma once
#include <cstdint>

#include "cache/pages.h"
#include "memory/memory.h"

namespace outrider {

// Memory is not resident until a page is touched, and pages hold what was last written to them.
class PageStore {
 public:
  PageStore(int layers, int pages, int kv_heads, int head_dim, KeyFormat format);

  const Store& store() const { return store_; }

  void copy(int source, int target) const;
  // A page as one piece of memory [page_bytes], head after head.
  void read(int page, uint8_t* out) const;
  void write(int page, const uint8_t* in) const;
  // The first `upto` tokens of a page become zero rows: every element its zero, every scale 0.
  void clear(int page, int upto) const;

 private:
  Store store_;
  Memory memory_;
};

}  // namespace outrider
