#include "cache/page_store.h"

#include <cstring>

namespace outrider {
namespace {

void clear_head(const HeadLayout& h, uint8_t* head, int upto) {
  const int size = 4 / h.per;  // bytes of an element
  for (int slot = 0; slot < upto; slot++) {
    for (int c = 0; c < h.lines; c++)
      memset(head + (slot / 16 * h.lines + c) * 64 + slot % 16 * 4, h.zero_key(), 4);
    for (int c = 0; c < h.width; c++)
      memset(head + h.values + (slot / h.per * h.width + c) * 4 + slot % h.per * size, 0, size);
  }
  if (!h.scaled()) return;
  memset(head + h.key_scales, 0, upto * sizeof(float));
  memset(head + h.value_scales, 0, upto * sizeof(float));
}

}  // namespace

PageStore::PageStore(int layers, int pages, int kv_heads, int head_dim, KeyFormat format)
    : store_{layers, pages, kv_heads, head_layout(format, head_dim), nullptr}, memory_(store_.bytes()) {
  store_.data = memory_.data();
}

void PageStore::copy(int source, int target) const {
  for (int i = 0; i < store_.heads(); i++)
    memcpy(store_.head(target, i), store_.head(source, i), store_.layout.bytes);
}

void PageStore::read(int page, uint8_t* out) const {
  const size_t bytes = store_.layout.bytes;
  for (int i = 0; i < store_.heads(); i++) memcpy(out + i * bytes, store_.head(page, i), bytes);
}

void PageStore::write(int page, const uint8_t* in) const {
  const size_t bytes = store_.layout.bytes;
  for (int i = 0; i < store_.heads(); i++) memcpy(store_.head(page, i), in + i * bytes, bytes);
}

void PageStore::clear(int page, int upto) const {
  for (int i = 0; i < store_.heads(); i++) clear_head(store_.layout, store_.head(page, i), upto);
}

}  // namespace outrider
