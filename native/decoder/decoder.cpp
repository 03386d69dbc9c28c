// A whole stack of decoder layers in one call.
#include <cstring>

#include "engine.h"

namespace outrider {

// Everything that one call's phases share.
struct Engine::Pass {
  const Stack& stack;
  float* x;
  const RowSet& rows;
  const Store& store;
  bool block;
  std::vector<AttentionPlan> plans;  // one per distinct window
  std::vector<int> group_of;         // per row
  float* flat;                       // [n, (h + 2 g) d]
  size_t flat_ld;
  float* mixed;                      // [n, h d]
  Acts hidden;                       // gated rows [n, F]
  float* wide;                       // [n, 2 F], where gate and up do not lie in pairs of tiles

  const AttentionPlan& plan_for(int window) const {
    for (const AttentionPlan& plan : plans)
      if (plan.window == window) return plan;
    return plans.front();
  }
};

namespace {

// Whether gate column c and up column c lie in tiles that can be gated together.
bool pairable(const Matrix& m) {
  const int half = m.rows / 2;
  if (half % BLOCK) return false;
  for (int i = 0; i < m.num_parts; i++)
    if (m.parts[i].first_col % TILE) return false;
  return true;
}

constexpr size_t AHEAD_BYTES = 96 << 10;  // what a thread asks for at a meeting

// Ask for tiles [first, first + tiles) of a matrix, up to `most` bytes.
void look_ahead(const Matrix& m, int first, int tiles, size_t most, Ahead& ahead, int part) {
  const Part& p = part_of(m, first);
  const size_t bytes = static_cast<size_t>(tiles) * p.stride;
  ahead.data[part] = p.data + static_cast<size_t>(first - p.first_tile) * p.stride;
  ahead.bytes[part] = bytes < most ? bytes : most;
}

// The part of a matrix that a thread starts its next phase with.
Ahead ahead_of(const Worker& worker, const Matrix& m) {
  Ahead ahead;
  int low, high;
  worker.share(m.tiles, low, high);
  if (low < high) look_ahead(m, low, high - low, AHEAD_BYTES, ahead, 0);
  return ahead;
}

// As ahead_of, for a product whose gate and up tiles are read side by side.
Ahead ahead_of_pairs(const Worker& worker, const Matrix& m) {
  Ahead ahead;
  int low, high;
  worker.share(m.tiles / 4, low, high);
  if (low >= high) return ahead;
  for (int side = 0; side < 2; side++)
    look_ahead(m, side * m.tiles / 2 + 2 * low, 2 * (high - low), AHEAD_BYTES / 2, ahead, side);
  return ahead;
}

}  // namespace

// Norm, rotate and cache one row's heads.
void Engine::project(Worker& worker, Pass& pass, const Layer& layer, int index, const Ahead& ahead) {
  const Stack& s = pass.stack;
  const int d = s.head_dim, n = pass.rows.count;
  int low, high;
  while (worker.take_run(n, low, high)) {
    ask_to_write(pass.flat + low * pass.flat_ld, (high - low) * pass.flat_ld * sizeof(float));
    for (int r = low; r < high; r++) {
      const int group = pass.group_of[r];
      const Group& g = pass.rows.groups[group];
      const int row = r - g.first_row, position = g.start + row;
      const size_t angle = static_cast<size_t>(position) * (d / 2);
      float* q = pass.flat + r * pass.flat_ld;
      float* k = q + s.heads * d;
      const float* v = k + s.kv_heads * d;
      for (int h = 0; h < s.heads + s.kv_heads; h++) {
        float* head = q + h * d;
        const float* weight = h < s.heads ? layer.q_norm : layer.k_norm;
        if (weight) path_.norm(head, weight, s.eps, d, head);
        path_.rotate(head, s.cos + angle, s.sin + angle, d, head);
      }
      if (pass.block) {
        write_block_row(pass.store.layout, s.kv_heads, group, row, k, v);
        continue;
      }
      for (int kv = 0; kv < s.kv_heads; kv++) {
        uint8_t* head = pass.store.head(g.pages[position / PAGE_TOKENS], index, kv);
        path_.keys_of(pass.store.layout).write(pass.store.layout, head, position % PAGE_TOKENS, k + kv * d, v + kv * d);
      }
    }
  }
  worker.meet(ahead);
}

void Engine::write_context(const Stack& stack, float* flat, const RowSet& rows, const Store& store) {
  const int d = stack.head_dim, layers = static_cast<int>(stack.layers.size());
  const size_t width = static_cast<size_t>(stack.kv_heads) * d;
  for (const Group& g : rows.groups) {
    for (int i = 0; i < g.count * layers; i++) {
      const int row = i / layers, index = i % layers, position = g.start + row;
      const size_t angle = static_cast<size_t>(position) * (d / 2);
      const float* weight = stack.layers[index].k_norm;
      float* k = flat + (static_cast<size_t>(g.first_row + row) * layers + index) * 2 * width;
      for (int kv = 0; kv < stack.kv_heads; kv++, k += d) {
        if (weight) path_.norm(k, weight, stack.eps, d, k);
        path_.rotate(k, stack.cos + angle, stack.sin + angle, d, k);
        uint8_t* head = store.head(g.pages[position / PAGE_TOKENS], index, kv);
        path_.keys_of(store.layout).write(store.layout, head, position % PAGE_TOKENS, k, k + width);
      }
    }
  }
}

void Engine::feed_forward(Worker& worker, Pass& pass, const Layer& layer, const Ahead& after) {
  const Stack& s = pass.stack;
  const Matrix& m = *layer.gate_up;
  const int n = pass.rows.count, width = layer.down->cols;
  const Outputs stream{pass.x, static_cast<size_t>(s.hidden), true};
  const Acts in = prepare(worker, m, pass.x, s.hidden, n, layer.mlp_norm, s.eps);
  Acts hidden = pass.hidden;
  hidden.blocks = width / BLOCK;
  hidden.ld = width;
  if (!layer.down->any_quantised) hidden.q = nullptr;
  if (!layer.down->any_float) hidden.x = nullptr;
  int low, high;
  if (pairable(m)) {
    const int pairs = width / BLOCK;
    float* gates = lanes_[worker.id()]->wide.as<float>(0);
    const Ahead down = ahead_of(worker, *layer.down);
    int first, last;
    worker.share(pairs, first, last);
    while (worker.take_run(pairs, low, high))
      path_.gated(m, low, high, in, n, hidden, gates, high == last ? down.data[0] : nullptr);
    worker.meet(down);
    product(worker, *layer.down, hidden, n, stream, after);
    return;
  }
  product(worker, m, in, n, {pass.wide, 2 * static_cast<size_t>(width), false});
  float* rows = const_cast<float*>(pass.hidden.x);
  while (worker.take(n, 1, low, high)) {
    const float* gate = pass.wide + static_cast<size_t>(low) * 2 * width;
    path_.swiglu(gate, gate + width, width, rows + static_cast<size_t>(low) * width);
  }
  worker.meet();
  const Acts down = prepare(worker, *layer.down, rows, width, n, nullptr, 0.0f);
  product(worker, *layer.down, down, n, stream, after);
}

void Engine::run_layer(Worker& worker, Pass& pass, int index) {
  const Stack& s = pass.stack;
  const Layer& layer = s.layers[index];
  const int n = pass.rows.count;
  const Acts in = prepare(worker, *layer.qkv, pass.x, s.hidden, n, layer.attn_norm, s.eps);
  const Attention a{&pass.store, index, &pass.rows, &pass.plan_for(layer.window), pass.flat,
                    pass.flat_ld, s.heads, pass.block ? block_.as<uint8_t>(0) : nullptr,
                    block_first_.data(), layer.causal, pass.mixed};
  const Ahead keys = a.plan->split ? ahead_of_keys(worker, a) : ahead_of(worker, *layer.out);
  product(worker, *layer.qkv, in, n, {pass.flat, pass.flat_ld, false}, keys);
  project(worker, pass, layer, index, keys);
  attention(worker, a, ahead_of(worker, *layer.out));
  const size_t mixed_ld = static_cast<size_t>(s.heads) * s.head_dim;
  const Acts mixed = prepare(worker, *layer.out, pass.mixed, mixed_ld, n, nullptr, 0.0f);
  const Matrix& gate_up = *layer.gate_up;
  const bool pairs = pairable(gate_up);
  product(worker, *layer.out, mixed, n, {pass.x, static_cast<size_t>(s.hidden), true},
          pairs ? ahead_of_pairs(worker, gate_up) : ahead_of(worker, gate_up));
  const bool last = index + 1 == static_cast<int>(s.layers.size());
  feed_forward(worker, pass, layer, last ? Ahead{} : ahead_of(worker, *s.layers[index + 1].qkv));
}

void Engine::run(const Stack& stack, float* x, const RowSet& rows, const Store& store, bool block,
                 const std::vector<int>& taps, float* tapped) {
  const size_t n = rows.count;
  if (n == 0) return;
  const int d = stack.head_dim;
  Pass pass{stack, x, rows, store, block, {}, {}, nullptr, 0, nullptr, {}, nullptr};
  pass.flat_ld = static_cast<size_t>(stack.heads + 2 * stack.kv_heads) * d;
  int width = 0, inputs = stack.hidden > stack.heads * d ? stack.hidden : stack.heads * d;
  bool floats = false, wide = false;
  for (const Layer& layer : stack.layers) {
    width = layer.down->cols > width ? layer.down->cols : width;
    floats |= layer.down->any_float || !pairable(*layer.gate_up);
    wide |= !pairable(*layer.gate_up);
    bool known = false;
    for (const AttentionPlan& p : pass.plans) known |= p.window == layer.window;
    if (!known) pass.plans.push_back(plan(rows, stack.heads, stack.kv_heads, layer.window, block));
  }
  for (size_t i = 0; i < rows.groups.size(); i++)
    pass.group_of.insert(pass.group_of.end(), rows.groups[i].count, static_cast<int>(i));
  pass.flat = flat_.as<float>(n * pass.flat_ld);
  pass.mixed = mixed_.as<float>(n * stack.heads * d);
  pass.hidden.q = hidden_lines_.as<int8_t>(line_count(rows.count, width) * LINE);
  pass.hidden.scale = hidden_scales_.as<BlockScale>(line_count(rows.count, width));
  pass.hidden.x = hidden_floats_.as<float>(floats ? n * width : 1);
  pass.wide = wide_.as<float>(wide ? n * 2 * width : 1);
  reserve_inputs(rows.count, wide && width > inputs ? width : inputs);
  for (const AttentionPlan& p : pass.plans) reserve_lanes(store.layout, p);
  for (std::unique_ptr<Lane>& lane : lanes_) lane->wide.as<float>(n * 4 * TILE);
  if (block) reserve_block(store.layout, rows, stack.kv_heads);

  // A tap is copied between a layer's last meeting and the next layer's first change of x, which
  // lies behind several meetings.
  const auto tap = [&](Worker& worker, int layer) {
    for (size_t t = 0; t < taps.size(); t++) {
      if (taps[t] != layer) continue;
      for (size_t r = worker.id(); r < n; r += worker.size())
        memcpy(tapped + (r * taps.size() + t) * stack.hidden, x + r * stack.hidden, stack.hidden * sizeof(float));
    }
  };
  pool_.run([&](Worker& worker) {
    tap(worker, -1);
    for (size_t i = 0; i < stack.layers.size(); i++) {
      run_layer(worker, pass, static_cast<int>(i));
      tap(worker, static_cast<int>(i));
    }
  });
}

}  // namespace outrider
