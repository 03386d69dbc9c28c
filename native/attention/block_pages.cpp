#include "attention/block_pages.h"

namespace outrider {

void BlockPages::reserve(const HeadLayout& layout, const RowSet& rows, int kv_heads) {
  layout_ = layout;
  kv_heads_ = kv_heads;
  first_.clear();
  size_t pages = 0;
  for (const Group& g : rows.groups) {
    first_.push_back(pages);
    pages += (g.count + PAGE_TOKENS - 1) / PAGE_TOKENS;
  }
  pages_.reserve<uint8_t>(pages * kv_heads * layout.bytes);
}

void BlockPages::write(const Path& path, int group, int row, const float* k, const float* v) {
  const KeyOps& keys = path.keys_of(layout_);
  for (int kv = 0; kv < kv_heads_; kv++) {
    uint8_t* page = head(group, kv, row / PAGE_TOKENS);
    const int at = kv * layout_.head_dim;
    keys.write(layout_, page, row % PAGE_TOKENS, k + at, v + at);
  }
}

}  // namespace outrider
