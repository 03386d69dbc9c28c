#include "decoder/decoder.h"

#include <cstring>

#include "attention/key_writer.h"
#include "decoder/heads.h"
#include "memory/prefetch.h"
#include "products/ahead.h"

namespace outrider {

// Everything that one call's phases share.
struct Decoder::Pass {
  const Stack& stack;
  float* x;
  const RowSet& rows;
  const Store& store;
  BlockPages* block;                 // of the rows' own keys and values, or null: they are cached
  std::vector<AttentionPlan> plans;  // one per distinct window
  std::vector<int> group_of;         // per row
  float* flat;                       // [n, (h + 2 g) d]
  size_t flat_ld;
  float* mixed;                      // [n, h d]

  Pass(const Stack& stack, float* x, const RowSet& rows, const Store& store, BlockPages* block)
      : stack(stack), x(x), rows(rows), store(store), block(block) {
    flat_ld = static_cast<size_t>(stack.heads + 2 * stack.kv_heads) * stack.head_dim;
    for (size_t i = 0; i < rows.groups.size(); i++)
      group_of.insert(group_of.end(), rows.groups[i].count, static_cast<int>(i));
  }

  const AttentionPlan* plan_for(int window) const {
    for (const AttentionPlan& plan : plans)
      if (plan.window == window) return &plan;
    return nullptr;
  }
};

// Room for all phases of a pass, and its plans.
void Decoder::reserve(Pass& pass) {
  const Stack& s = pass.stack;
  const int n = pass.rows.count, mixed_ld = s.heads * s.head_dim;
  const OwnKeys own = pass.block ? OwnKeys::BLOCK : OwnKeys::CACHED;
  for (const Layer& layer : s.layers)
    if (!pass.plan_for(layer.window))
      pass.plans.push_back(plan_attention(pass.rows, s.heads, s.kv_heads, layer.window, own, pool_.size()));
  pass.flat = flat_.reserve<float>(n * pass.flat_ld);
  pass.mixed = mixed_.reserve<float>(static_cast<size_t>(n) * mixed_ld);
  products_.reserve(n, s.hidden > mixed_ld ? s.hidden : mixed_ld);
  feed_forward_.reserve(s, n);
  for (const AttentionPlan& plan : pass.plans) attention_.reserve(pass.store.layout, plan);
  if (pass.block) pass.block->reserve(pass.store.layout, pass.rows, s.kv_heads);
}

// Norm, rotate and keep one row's heads.
void Decoder::place_row(const Pass& pass, int index, int r) {
  const Stack& s = pass.stack;
  const Layer& layer = s.layers[index];
  const int d = s.head_dim, group = pass.group_of[r];
  const Group& g = pass.rows.groups[group];
  const int row = r - g.first_row, position = g.start + row;
  float* q = pass.flat + r * pass.flat_ld;
  float* k = q + s.heads * d;
  const float* v = k + s.kv_heads * d;
  for (int h = 0; h < s.heads; h++) place_head(path_, s, layer.q_norm, position, q + h * d);
  for (int kv = 0; kv < s.kv_heads; kv++) place_head(path_, s, layer.k_norm, position, k + kv * d);
  if (pass.block) {
    pass.block->write(path_, group, row, k, v);
    return;
  }
  for (int kv = 0; kv < s.kv_heads; kv++)
    write_cached(path_, pass.store, g, index, kv, position, k + kv * d, v + kv * d);
}

void Decoder::place_rows(Worker& worker, const Pass& pass, int index, const Ahead& ahead) {
  int low, high;
  while (worker.take_run(pass.rows.count, low, high)) {
    ask_to_write(pass.flat + low * pass.flat_ld, (high - low) * pass.flat_ld * sizeof(float));
    for (int r = low; r < high; r++) place_row(pass, index, r);
  }
  worker.meet(ahead);
}

void Decoder::run_layer(Worker& worker, const Pass& pass, int index) {
  const Stack& s = pass.stack;
  const Layer& layer = s.layers[index];
  const int n = pass.rows.count;
  const size_t hidden = s.hidden, mixed_ld = static_cast<size_t>(s.heads) * s.head_dim;
  const AttentionCall call{&pass.store, index,   &pass.rows, pass.plan_for(layer.window), pass.flat,
                           pass.flat_ld, s.heads, pass.block, layer.causal,                pass.mixed};
  const Ahead keys = call.plan->split ? attention_.ahead_of(worker, call) : ahead_of(worker, *layer.out);
  const Acts in = products_.prepare(worker, *layer.qkv, {pass.x, hidden, n, layer.attn_norm, s.eps});
  products_.multiply(worker, *layer.qkv, in, n, {pass.flat, pass.flat_ld, false}, keys);
  place_rows(worker, pass, index, keys);
  attention_.run(worker, call, ahead_of(worker, *layer.out));

  const Matrix& gate_up = *layer.gate_up;
  const Acts mixed = products_.prepare(worker, *layer.out, {pass.mixed, mixed_ld, n});
  products_.multiply(worker, *layer.out, mixed, n, {pass.x, hidden, true},
                     pairable(gate_up) ? ahead_of_pairs(worker, gate_up) : ahead_of(worker, gate_up));
  const bool last = index + 1 == static_cast<int>(s.layers.size());
  feed_forward_.run(worker, s, layer, pass.x, n, last ? Ahead{} : ahead_of(worker, *s.layers[index + 1].qkv));
}

void Decoder::run(const Stack& stack, float* x, const RowSet& rows, const Store& store,
                  const std::vector<int>& taps, float* tapped) {
  const size_t n = rows.count, hidden = stack.hidden;
  if (n == 0) return;
  Pass pass(stack, x, rows, store, nullptr);
  reserve(pass);
  // A tap is copied between a layer's last meeting and the next layer's first change of x, which
  // lies behind several meetings.
  const auto tap = [&](const Worker& worker, int layer) {
    for (size_t t = 0; t < taps.size(); t++) {
      if (taps[t] != layer) continue;
      for (size_t r = worker.id(); r < n; r += worker.size())
        memcpy(tapped + (r * taps.size() + t) * hidden, x + r * hidden, hidden * sizeof(float));
    }
  };
  pool_.run([&](Worker& worker) {
    tap(worker, -1);
    for (int i = 0; i < static_cast<int>(stack.layers.size()); i++) {
      run_layer(worker, pass, i);
      tap(worker, i);
    }
  });
}

void Decoder::run_block(const Stack& stack, float* x, const RowSet& rows, const Store& store) {
  if (rows.count == 0) return;
  Pass pass(stack, x, rows, store, &attention_.block());
  reserve(pass);
  pool_.run([&](Worker& worker) {
    for (int i = 0; i < static_cast<int>(stack.layers.size()); i++) run_layer(worker, pass, i);
  });
}

}  // namespace outrider
