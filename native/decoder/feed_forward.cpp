#include "decoder/feed_forward.h"

#include "products/ahead.h"

namespace outrider {

bool pairable(const Matrix& gate_up) {
  const int half = gate_up.rows / 2;
  if (half % BLOCK) return false;
  for (int i = 0; i < gate_up.num_parts; i++)
    if (gate_up.parts[i].first_col % TILE) return false;
  return true;
}

void FeedForward::reserve(const Stack& stack, int n) {
  int width = 0;
  bool floats = false, apart = false;
  for (const Layer& layer : stack.layers) {
    width = layer.down->cols > width ? layer.down->cols : width;
    apart |= !pairable(*layer.gate_up);
    floats |= layer.down->any_float;
  }
  const size_t rows = n;
  lines_.reserve<int8_t>(line_count(n, width) * LINE);
  scales_.reserve<BlockScale>(line_count(n, width));
  if (floats || apart) floats_.reserve<float>(rows * width);
  if (apart) wide_.reserve<float>(rows * 2 * width);
  if (apart) products_.reserve(n, width);
  lanes_.each([&](Lane& lane) { lane.gates.reserve<float>(rows * 4 * TILE); });
}

void FeedForward::run(Worker& worker, const Stack& stack, const Layer& layer, float* x, int n,
                      const Ahead& after) {
  const size_t hidden = stack.hidden;
  const Acts in = products_.prepare(worker, *layer.gate_up, {x, hidden, n, layer.mlp_norm, stack.eps});
  const Outputs stream{x, hidden, true};
  if (pairable(*layer.gate_up)) {
    run_pairs(worker, layer, in, n, stream, after);
  } else {
    run_apart(worker, layer, in, n, stream, after);
  }
}

void FeedForward::run_pairs(Worker& worker, const Layer& layer, const Acts& in, int n,
                            const Outputs& stream, const Ahead& after) {
  const Matrix& m = *layer.gate_up;
  const int width = layer.down->cols, pairs = width / BLOCK;
  Acts gated{nullptr, static_cast<size_t>(width), nullptr, scales_.data<BlockScale>(), pairs};
  if (layer.down->any_float) gated.x = floats_.data<float>();
  if (layer.down->any_quantised) gated.q = lines_.data<int8_t>();
  float* gates = lanes_.of(worker).gates.data<float>();
  const Ahead down = ahead_of(worker, *layer.down);
  int low, high, first, last;
  worker.share(pairs, first, last);
  while (worker.take_run(pairs, low, high))
    path_.gated(m, low, high, in, n, gated, gates, high == last ? down.data[0] : nullptr);
  worker.meet(down);
  products_.multiply(worker, *layer.down, gated, n, stream, after);
}

void FeedForward::run_apart(Worker& worker, const Layer& layer, const Acts& in, int n,
                            const Outputs& stream, const Ahead& after) {
  const size_t width = layer.down->cols;
  float* wide = wide_.data<float>();
  float* rows = floats_.data<float>();
  products_.multiply(worker, *layer.gate_up, in, n, {wide, 2 * width, false});
  int low, high;
  while (worker.take(n, 1, low, high)) {
    const float* gate = wide + low * 2 * width;
    path_.swiglu(gate, gate + width, layer.down->cols, rows + low * width);
  }
  worker.meet();
  const Acts down = products_.prepare(worker, *layer.down, {rows, width, n});
  products_.multiply(worker, *layer.down, down, n, stream, after);
}

}  // namespace outrider
