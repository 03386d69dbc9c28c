// Whole drafts of blocks.
#pragma once
#include <vector>

#include "cache/pages.h"
#include "cache/rows.h"
#include "decoder/decoder.h"
#include "drafting/markov.h"
#include "memory/buffer.h"
#include "products/products.h"

namespace outrider {

// What turns tips into drafted blocks.
struct BlockDraftWeights {
  const Stack* stack;
  const Matrix* embedding;
  float scale;         // of a tip's embedding
  const float* masks;  // [rows, H]: a block before its tip is set
  int rows;
  int first;  // block row that predicts the first token
  const float* norm;
  const Matrix* head;
  MarkovBias markov;
  const float* confidence;  // [H + r + 1], or null
};

// A block's tokens follow from its tip, its draw and the cached context before it.
class Drafting {
 public:
  Drafting(const Path& path, Products& products, Decoder& decoder, MarkovDecoder& markov)
      : path_(path), products_(products), decoder_(decoder), markov_(markov) {}

  // Target ids and confidences of every block's tokens, block after block; a group of `weights.rows`
  // rows per block.
  void draft(const BlockDraftWeights& weights, const RowSet& rows, const Store& store,
             const std::vector<Block>& blocks, int64_t* out, float* confidences);

 private:
  float* open_blocks(const BlockDraftWeights& weights, const std::vector<Block>& blocks);
  float* final_states(const BlockDraftWeights& weights, const std::vector<Block>& blocks, const float* x);
  float confidence(const BlockDraftWeights& weights, const float* state, int64_t previous);

  const Path& path_;
  Products& products_;
  Decoder& decoder_;
  MarkovDecoder& markov_;
  Buffer rows_;      // [blocks * rows, H]
  Buffer states_;    // [tokens, H]
  Buffer scores_;    // [tokens, V']
  Buffer embedded_;  // [r]
};

}  // namespace outrider
