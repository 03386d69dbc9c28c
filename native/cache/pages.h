// Pages of cached keys and values.
#pragma once
#include <cstddef>
#include <cstdint>

namespace outrider {

constexpr int PAGE_TOKENS = 32;
constexpr int SPAN_PAGES = 4;
constexpr int SPAN = PAGE_TOKENS * SPAN_PAGES;  // keys of one softmax span, from position 0

// How keys and values are kept: integers with a scale per token and head, or floats as they are.
enum class KeyFormat : int { INT8 = 0, BF16 = 1, F32 = 2 };
constexpr int KEY_FORMATS = 3;

// Elements of a 4-byte word.
constexpr int per_word(KeyFormat format) {
  return format == KeyFormat::INT8 ? 4 : format == KeyFormat::BF16 ? 2 : 1;
}

// One head of one page, of elements that lie `per` to a word:
//   keys    [2 tiles of 16 tokens][lines = ceil(d / per)][16 tokens][per dimensions]
//   values  [32 / per groups of tokens][width][per tokens], width = d rounded up to 16
//   INT8 alone: key scales float[32], value scales float[32]; its keys are biased by 128
// Memory of rows that were never written may hold anything, NaN included.
struct HeadLayout {
  KeyFormat format;
  int head_dim;
  int per;
  int lines;
  int width;
  size_t values;
  size_t key_scales;
  size_t value_scales;
  size_t bytes;

  bool scaled() const { return format == KeyFormat::INT8; }
  // A key word of zeros.
  uint8_t zero_key() const { return format == KeyFormat::INT8 ? 0x80 : 0; }
  // Bytes of a query as the kernels read it: two bytes or a float for each dimension.
  size_t query_bytes() const { return static_cast<size_t>(lines) * (scaled() ? 8 : 4 * per); }
};

inline HeadLayout head_layout(KeyFormat format, int head_dim) {
  HeadLayout h{};
  h.format = format;
  h.head_dim = head_dim;
  h.per = per_word(format);
  h.lines = (head_dim + h.per - 1) / h.per;
  h.width = (head_dim + 15) / 16 * 16;
  h.values = static_cast<size_t>(2) * h.lines * 64;
  h.key_scales = h.values + static_cast<size_t>(PAGE_TOKENS) / h.per * h.width * 4;
  const size_t scales = h.scaled() ? PAGE_TOKENS * sizeof(float) : 0;
  h.value_scales = h.key_scales + scales;
  h.bytes = (h.value_scales + scales + 63) / 64 * 64;
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
