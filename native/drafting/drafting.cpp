#include "drafting/drafting.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace outrider {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float dot(const float* a, const float* b, int count) {
  float sum = 0.0f;
  for (int i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

size_t tokens_of(const std::vector<Block>& blocks) {
  size_t count = 0;
  for (const Block& block : blocks) count += block.length;
  return count;
}

}  // namespace

// Every block before its layers: its tip's embedding, then masks.
float* Drafting::open_blocks(const BlockDraftWeights& w, const std::vector<Block>& blocks) {
  const size_t hidden = w.head->cols, size = w.rows * hidden;
  float* x = rows_.reserve<float>(blocks.size() * size);
  for (size_t b = 0; b < blocks.size(); b++) {
    float* row = x + b * size;
    memcpy(row, w.masks, size * sizeof(float));
    path_.embed(*w.embedding, static_cast<int>(blocks[b].tip), row);
    if (w.scale != 1.0f)
      for (size_t i = 0; i < hidden; i++) row[i] *= w.scale;
  }
  return x;
}

// The normed rows that predict tokens, block after block.
float* Drafting::final_states(const BlockDraftWeights& w, const std::vector<Block>& blocks, const float* x) {
  const size_t hidden = w.head->cols;
  float* states = states_.reserve<float>(tokens_of(blocks) * hidden);
  for (size_t b = 0; b < blocks.size(); b++)
    for (int r = 0; r < blocks[b].length; r++)
      path_.norm(x + (b * w.rows + w.first + r) * hidden, w.norm, w.stack->eps, w.head->cols,
                 states + (blocks[b].first + r) * hidden);
  return states;
}

// Confidence of one row: NaN if its state is not finite, 1 without a head.
float Drafting::confidence(const BlockDraftWeights& w, const float* state, int64_t previous) {
  const int hidden = w.head->cols, rank = w.markov.tokens->cols;
  float sum = 0.0f;
  for (int i = 0; i < hidden; i++) sum += state[i];
  if (!std::isfinite(sum)) return std::numeric_limits<float>::quiet_NaN();
  if (!w.confidence) return 1.0f;
  float* embedded = embedded_.reserve<float>(rank);
  path_.embed(*w.markov.tokens, static_cast<int>(previous), embedded);
  const float* head = w.confidence;
  return sigmoid(dot(state, head, hidden) + dot(embedded, head + hidden, rank) + head[hidden + rank]);
}

void Drafting::draft(const BlockDraftWeights& w, const RowSet& rows, const Store& store,
                     const std::vector<Block>& blocks, int64_t* out, float* confidences) {
  const size_t hidden = w.head->cols;
  const int count = static_cast<int>(tokens_of(blocks));
  float* x = open_blocks(w, blocks);
  decoder_.run_block(*w.stack, x, rows, store);
  const float* states = final_states(w, blocks, x);
  float* scores = scores_.reserve<float>(static_cast<size_t>(count) * w.head->rows);
  products_.linear(*w.head, states, count, scores);
  markov_.decode(w.markov, scores, blocks, out);
  for (const Block& block : blocks)
    for (int r = block.first; r < block.first + block.length; r++)
      confidences[r] = confidence(w, states + r * hidden, r == block.first ? block.tip : out[r - 1]);
}

}  // namespace outrider
