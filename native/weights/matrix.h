// Packed weight formats and quantised activation rows, shared by every code path.
#pragma once
#include <cstddef>
#include <cstdint>

namespace outrider {

constexpr int TILE = 16;        // outputs that are interleaved in one weight tile
constexpr int BLOCK = 32;       // inputs that share one quantisation scale
constexpr int LINE = 32;        // bytes of one quantised block of one activation row

// Q4: d (q - 8). Q4M: d q + m. Q8: d (q - 128). Q8M: d q + m with q below 32.
enum class Kind : int { Q4 = 0, Q4M = 1, Q8 = 2, Q8M = 3, BF16 = 4, F32 = 5 };

constexpr bool quantised(Kind kind) { return kind != Kind::BF16 && kind != Kind::F32; }
constexpr bool four_bit(Kind kind) { return kind == Kind::Q4 || kind == Kind::Q4M; }
constexpr bool has_minimum(Kind kind) { return kind == Kind::Q4M || kind == Kind::Q8M; }

// Bytes of one block of 32 inputs of one tile: integers, then half-precision scales (and minima).
constexpr size_t quant_bytes(Kind kind) { return four_bit(kind) ? 256 : 512; }
constexpr size_t scale_bytes(Kind kind) { return has_minimum(kind) ? 64 : 32; }

// One matrix [rows, cols] in one format, cut into tiles of 16 outputs.
//
// Quantised tile: `blocks` groups of integers, then `blocks` groups of scales. In an 8-bit group,
// byte 64 c + 4 j + i holds input 4 c + i of output j; in a 4-bit group, byte 64 c + 4 j + i holds
// input 8 c + i in its low half and input 8 c + 4 + i in its high half.
// BF16 tile: inputs in pairs, [pair][output][2]. F32 tile: [input][output].
struct Part {
  Kind kind;
  int rows;
  int cols;
  int tiles;
  int first_tile;  // of the whole matrix
  int first_col;   // output column of the whole matrix
  size_t stride;   // bytes from tile to tile
  uint8_t* data;
};

// A matrix [rows, cols] of parts stacked along their outputs, with an optional bias [rows].
struct Matrix {
  const Part* parts;
  int num_parts;
  int rows;
  int cols;
  int tiles;
  const float* bias;
  bool any_quantised;
  bool any_float;
};

inline const Part& part_of(const Matrix& m, int tile) {
  int at = 0;
  while (at + 1 < m.num_parts && tile >= m.parts[at + 1].first_tile) at++;
  return m.parts[at];
}

constexpr int STRIP_ROWS = 8;  // rows that share a load of weights

struct alignas(16) BlockScale {
  float d;         // scale
  float s;         // scale times the sum of the integers, for formats with a minimum
  int32_t sum8;    // -8 times their sum: turns q4 into q4 - 8
  int32_t sum128;  // -128 times their sum: turns q8 into q8 - 128
};

// Activation rows [n, cols] as a product reads them: strips of 8 rows, in a strip block after block,
// in a block row after row. Float rows are x + r * ld.
struct Acts {
  const float* x;
  size_t ld;
  int8_t* q;          // lines of 32 bytes
  BlockScale* scale;  // one for each line
  int blocks;
};

// Index of the line of one row's block 0; block b is b * STRIP_ROWS lines on.
inline size_t line_of(const Acts& a, int row) {
  return static_cast<size_t>(row / STRIP_ROWS) * a.blocks * STRIP_ROWS + row % STRIP_ROWS;
}
inline size_t line_count(int rows, int cols) {
  return static_cast<size_t>((rows + STRIP_ROWS - 1) / STRIP_ROWS) * STRIP_ROWS * (cols / BLOCK);
}

}  // namespace outrider
