// Cached keys and values in 8 bits: one scale per token and head.
#pragma once
#include <cstddef>
#include <cstdint>

namespace outrider {

constexpr int PAGE_TOKENS = 32;
constexpr int SPAN_PAGES = 4;
constexpr int SPAN = PAGE_TOKENS * SPAN_PAGES;  // keys of one softmax span, from position 0

// One head of one page:
//   keys    [2 tiles of 16 tokens][ceil(d / 4)][16 tokens][4], each biased by 128
//   values  [8 quads of tokens][width][4], width = d rounded up to 16
//   key scales float[32], value scales float[32]
// Integers cannot be NaN, so a row that was never written can spoil a result through its scale
// alone; the kernels drop masked lanes after scaling.
struct HeadLayout {
  int head_dim;
  int quads;   // ceil(d / 4)
  int width;   // d rounded up to 16
  size_t values;
  size_t key_scales;
  size_t value_scales;
  size_t bytes;
};

inline HeadLayout head_layout(int head_dim) {
  HeadLayout h{};
  h.head_dim = head_dim;
  h.quads = (head_dim + 3) / 4;
  h.width = (head_dim + 15) / 16 * 16;
  h.values = static_cast<size_t>(2) * h.quads * 64;
  h.key_scales = h.values + static_cast<size_t>(PAGE_TOKENS) * h.width;
  h.value_scales = h.key_scales + PAGE_TOKENS * sizeof(float);
  h.bytes = h.value_scales + PAGE_TOKENS * sizeof(float);
  h.bytes = (h.bytes + 63) / 64 * 64;
  return h;
}

constexpr int PAGE_RUN = 16;

// Pages of every layer, [runs of pages][layers][heads][PAGE_RUN]: what one head of one layer reads of
// neighbouring pages is one piece of memory, and a session that fills them touches few pieces.
struct Store {
  int layers;
  int pages;
  int kv_heads;
  HeadLayout layout;
  uint8_t* data;

  int heads() const { return layers * kv_heads; }
  size_t page_bytes() const { return static_cast<size_t>(heads()) * layout.bytes; }
  size_t bytes() const { return static_cast<size_t>(pages + PAGE_RUN - 1) / PAGE_RUN * PAGE_RUN * page_bytes(); }
  // Heads of all layers in order.
  uint8_t* head(int page, int index) const {
    const size_t piece = static_cast<size_t>(page / PAGE_RUN) * heads() + index;
    return data + (piece * PAGE_RUN + page % PAGE_RUN) * layout.bytes;
  }
  uint8_t* head(int page, int layer, int kv) const { return head(page, layer * kv_heads + kv); }
};

}  // namespace outrider
