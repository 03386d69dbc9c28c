// Markov decoding: tokens of blocks of rows, left to right.
#pragma once
#include <cstdint>
#include <vector>

#include "memory/buffer.h"
#include "products/competition.h"
#include "products/products.h"

namespace outrider {

// What the token before a row adds to the row's scores: out * tokens[previous], of low rank r.
struct MarkovBias {
  const Matrix* tokens;  // [V, r]
  const Matrix* out;     // [V', r]
  const int32_t* ids;    // target ids of the outputs, padded to whole tiles; null: their own numbers
};

// One block: its rows of the scores, the token before it, and how it draws (positions count on from
// its first row).
struct Block {
  int first;
  int length;
  int64_t tip;
  Draw draw;
};

// Rows as far along as one another compete in one step. A block's tokens follow from its scores, tip
// and draw alone, whichever blocks share the call.
class MarkovDecoder {
 public:
  MarkovDecoder(const Path& path, Pool& pool, Products& products, Competition& competition)
      : path_(path), pool_(pool), products_(products), competition_(competition) {}

  // Target ids of every row: out [rows] for scores [rows, V'], in blocks one after another. NaN beats
  // nothing.
  void decode(const MarkovBias& bias, const float* scores, const std::vector<Block>& blocks, int64_t* out);

 private:
  struct Step;

  void open_step(const MarkovBias& bias, const float* scores, const std::vector<Block>& blocks, int at,
                 Step& step);
  void close_step(int threads, const MarkovBias& bias, const std::vector<Block>& blocks, int at, Step& step,
                  int64_t* out);

  const Path& path_;
  Pool& pool_;
  Products& products_;
  Competition& competition_;
  Buffer embedded_;  // [blocks, r]
};

}  // namespace outrider
