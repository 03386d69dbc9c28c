// Writes keys and values of rows into the cache.
#pragma once
#include "cache/pages.h"
#include "cache/rows.h"
#include "paths/path.h"

namespace outrider {

// One head's key and value [head_dim] of the token at `position`, rounded as the store keeps them. No
// other token's bytes are touched: rows may be written by any threads in any order.
inline void write_cached(const Path& path, const Store& store, const Group& group, int layer, int kv,
                         int position, const float* k, const float* v) {
  uint8_t* head = store.head(group.pages[position / PAGE_TOKENS], layer, kv);
  path.keys_of(store.layout).write(store.layout, head, position % PAGE_TOKENS, k, v);
}

}  // namespace outrider
