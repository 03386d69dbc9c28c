// A whole stack of decoder layers in one call.
#pragma once
#include <vector>

#include "attention/attention.h"
#include "cache/pages.h"
#include "cache/rows.h"
#include "decoder/feed_forward.h"
#include "decoder/stack.h"
#include "memory/buffer.h"
#include "paths/path.h"
#include "products/products.h"
#include "threads/pool.h"

namespace outrider {

// One run of the pool does all layers, phase after phase. A row's stream follows from its own and from
// the keys and values that it sees: the other rows of the call change no bit.
class Decoder {
 public:
  Decoder(const Path& path, Pool& pool, Products& products, Attention& attention)
      : path_(path), pool_(pool), products_(products), attention_(attention),
        feed_forward_(path, pool, products) {}

  // x [n, hidden] becomes the residual stream after the last layer; the rows' keys and values are
  // cached. tapped [n, taps * hidden]: the streams after layers `taps`, -1 being the input.
  void run(const Stack& stack, float* x, const RowSet& rows, const Store& store, const std::vector<int>& taps,
           float* tapped);
  // The same for blocks, a group each, whose keys and values are not cached.
  void run_block(const Stack& stack, float* x, const RowSet& rows, const Store& store);

 private:
  struct Pass;

  void reserve(Pass& pass);
  void run_layer(Worker& worker, const Pass& pass, int index);
  void place_rows(Worker& worker, const Pass& pass, int index, const Ahead& ahead);
  void place_row(const Pass& pass, int index, int row);

  const Path& path_;
  Pool& pool_;
  Products& products_;
  Attention& attention_;
  FeedForward feed_forward_;
  Buffer flat_;   // [n, (h + 2 g) d]
  Buffer mixed_;  // [n, h d]
};

}  // namespace outrider
