#include "drafting/context.h"

#include "attention/key_writer.h"
#include "decoder/heads.h"

namespace outrider {

void Context::ingest(const ContextWeights& weights, const Stack& stack, const float* taps, const RowSet& rows,
                     const Store& store) {
  const Matrix &fc = *weights.fc, &keys_values = *weights.keys_values;
  const int n = rows.count;
  if (n == 0) return;
  const size_t hidden = fc.rows, inputs = fc.cols, width = keys_values.rows;
  float* projected = projected_.reserve<float>(n * hidden);
  float* flat = flat_.reserve<float>(n * width);
  products_.reserve(n, fc.cols > keys_values.cols ? fc.cols : keys_values.cols);
  pool_.run([&](Worker& worker) {
    const Acts in = products_.prepare(worker, fc, {taps, inputs, n});
    products_.multiply(worker, fc, in, n, {projected, hidden, false});
    const Acts normed = products_.prepare(worker, keys_values, {projected, hidden, n, weights.norm, stack.eps});
    products_.multiply(worker, keys_values, normed, n, {flat, width, false});
  });
  write(stack, flat, rows, store);
}

void Context::write(const Stack& stack, float* flat, const RowSet& rows, const Store& store) {
  const int d = stack.head_dim, layers = static_cast<int>(stack.layers.size());
  const size_t width = static_cast<size_t>(stack.kv_heads) * d;
  for (const Group& g : rows.groups) {
    for (int i = 0; i < g.count * layers; i++) {
      const int row = i / layers, index = i % layers, position = g.start + row;
      float* k = flat + (static_cast<size_t>(g.first_row + row) * layers + index) * 2 * width;
      for (int kv = 0; kv < stack.kv_heads; kv++, k += d) {
        place_head(path_, stack, stack.layers[index].k_norm, position, k);
        write_cached(path_, store, g, index, kv, position, k, k + width);
      }
    }
  }
}

}  // namespace outrider
