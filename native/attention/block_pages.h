// Keys and values of blocks of rows that are not cached.
#pragma once
#include <vector>

#include "cache/pages.h"
#include "cache/rows.h"
#include "memory/buffer.h"
#include "paths/path.h"

namespace outrider {

// Scratch pages of the groups of one call, laid out and rounded as cached ones: row 0 of a group is
// slot 0 of its first page.
class BlockPages {
 public:
  // Room for one layer's heads of all groups; what was written before is lost.
  void reserve(const HeadLayout& layout, const RowSet& rows, int kv_heads);

  uint8_t* head(int group, int kv, int page) const {
    return pages_.data<uint8_t>() + ((first_[group] + page) * kv_heads_ + kv) * layout_.bytes;
  }
  // All heads' keys and values [kv_heads, head_dim] of one row. Rows may be written by any threads.
  void write(const Path& path, int group, int row, const float* k, const float* v);

 private:
  HeadLayout layout_{};
  int kv_heads_ = 0;
  std::vector<size_t> first_;  // pages before a group
  Buffer pages_;
};

}  // namespace outrider
