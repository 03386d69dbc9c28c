// What a block drafter keeps of the target's rows.
#pragma once
#include "cache/pages.h"
#include "cache/rows.h"
#include "decoder/stack.h"
#include "memory/buffer.h"
#include "products/products.h"

namespace outrider {

// What turns a row's taps into its keys and values for all layers of a drafter.
struct ContextWeights {
  const Matrix* fc;           // [H, taps * H]
  const float* norm;          // [H]
  const Matrix* keys_values;  // [layers * 2 g d, H]: for each layer keys, then values
};

// Cached keys and values of rows that no pass of the stack has seen. A row's follow from its taps and
// position alone.
class Context {
 public:
  Context(const Path& path, Pool& pool, Products& products) : path_(path), pool_(pool), products_(products) {}

  // Context rows of tapped states [n, taps * H], written for all layers.
  void ingest(const ContextWeights& weights, const Stack& stack, const float* taps, const RowSet& rows,
              const Store& store);
  // Keys of flat [n, layers * 2 g d] are normed and rotated in place, then written with the values.
  void write(const Stack& stack, float* flat, const RowSet& rows, const Store& store);

 private:
  const Path& path_;
  Pool& pool_;
  Products& products_;
  Buffer projected_;  // [n, H]
  Buffer flat_;       // [n, layers * 2 g d]
};

}  // namespace outrider
