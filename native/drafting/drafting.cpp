// Whole drafts of blocks, and the context rows that they read.
#include <cmath>
#include <limits>

#include "engine.h"

namespace outrider {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float dot(const float* a, const float* b, int count) {
  float sum = 0.0f;
  for (int i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

}  // namespace

// Confidence of one row: NaN if its state is not finite, 1 without a head.
float Engine::confidence(const Sketch& s, const float* state, int64_t previous) {
  const int hidden = s.head->cols, rank = s.chain.tokens->cols;
  float sum = 0.0f;
  for (int i = 0; i < hidden; i++) sum += state[i];
  if (!std::isfinite(sum)) return std::numeric_limits<float>::quiet_NaN();
  if (!s.confidence) return 1.0f;
  float* embedded = embedded_.as<float>(rank);
  path_.embed(*s.chain.tokens, static_cast<int>(previous), embedded);
  const float* w = s.confidence;
  return sigmoid(dot(state, w, hidden) + dot(embedded, w + hidden, rank) + w[hidden + rank]);
}

void Engine::draft(const Sketch& s, const RowSet& rows, const Store& store,
                   const std::vector<Block>& blocks, int64_t* out, float* confidences) {
  const int hidden = s.head->cols;
  const size_t size = s.rows;
  int count = 0;
  for (const Block& block : blocks) count += block.length;
  float* x = block_rows_.as<float>(blocks.size() * size * hidden);
  for (size_t b = 0; b < blocks.size(); b++) {
    float* row = x + b * size * hidden;
    memcpy(row, s.masks, size * hidden * sizeof(float));
    path_.embed(*s.embedding, static_cast<int>(blocks[b].tip), row);
    if (s.scale != 1.0f)
      for (int i = 0; i < hidden; i++) row[i] *= s.scale;
  }
  run(*s.stack, x, rows, store, true, {}, nullptr);
  float* states = states_.as<float>(static_cast<size_t>(count) * hidden);
  for (size_t b = 0; b < blocks.size(); b++)
    for (int r = 0; r < blocks[b].length; r++)
      path_.norm(x + (b * size + s.first + r) * hidden, s.norm, s.stack->eps, hidden,
                 states + static_cast<size_t>(blocks[b].first + r) * hidden);
  float* scores = scores_.as<float>(static_cast<size_t>(count) * s.head->rows);
  linear(*s.head, states, count, scores);
  walk(s.chain, scores, blocks, out);
  for (const Block& block : blocks)
    for (int r = block.first; r < block.first + block.length; r++)
      confidences[r] = confidence(s, states + static_cast<size_t>(r) * hidden,
                                  r == block.first ? block.tip : out[r - 1]);
}

void Engine::ingest(const Matrix& fc, const float* norm, const Matrix& keys_values, const Stack& stack,
                    const float* taps, const RowSet& rows, const Store& store) {
  const int n = rows.count;
  if (n == 0) return;
  float* projected = states_.as<float>(static_cast<size_t>(n) * fc.rows);
  float* flat = flat_.as<float>(static_cast<size_t>(n) * keys_values.rows);
  reserve_inputs(n, fc.cols > keys_values.cols ? fc.cols : keys_values.cols);
  pool_.run([&](Worker& worker) {
    const Acts in = prepare(worker, fc, taps, fc.cols, n, nullptr, 0.0f);
    product(worker, fc, in, n, {projected, static_cast<size_t>(fc.rows), false});
    const Acts normed = prepare(worker, keys_values, projected, fc.rows, n, norm, stack.eps);
    product(worker, keys_values, normed, n, {flat, static_cast<size_t>(keys_values.rows), false});
  });
  write_context(stack, flat, rows, store);
}

}  // namespace outrider
