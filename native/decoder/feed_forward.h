// A layer's feed-forward half.
#pragma once
#include "decoder/stack.h"
#include "memory/buffer.h"
#include "paths/path.h"
#include "products/products.h"
#include "threads/per_thread.h"
#include "threads/pool.h"

namespace outrider {

// Whether a matrix's gate column c and up column c lie in tiles that can be gated together.
bool pairable(const Matrix& gate_up);

// Gated values pass from one product to the next as the second reads them. Where gates and values lie
// in pairs of tiles the first product gates them itself; a value's bits are the same either way.
class FeedForward {
 public:
  FeedForward(const Path& path, const Pool& pool, Products& products)
      : path_(path), products_(products), lanes_(pool) {}

  // Before a run: room for n rows of any of the stack's layers.
  void reserve(const Stack& stack, int n);
  // Phases that add down(silu(gate) * value) of each normed row to the stream x [n, hidden]. `after`:
  // what each thread reads in the next phase.
  void run(Worker& worker, const Stack& stack, const Layer& layer, float* x, int n, const Ahead& after);

 private:
  struct Lane {
    Buffer gates;  // [n, 4 tiles]
  };

  void run_pairs(Worker& worker, const Layer& layer, const Acts& in, int n, const Outputs& stream,
                 const Ahead& after);
  void run_apart(Worker& worker, const Layer& layer, const Acts& in, int n, const Outputs& stream,
                 const Ahead& after);

  const Path& path_;
  Products& products_;
  PerThread<Lane> lanes_;
  Buffer lines_, scales_, floats_;  // gated rows [n, F]
  Buffer wide_;  // [n, 2 F], where gate and up do not lie in pairs of tiles
};

}  // namespace outrider
