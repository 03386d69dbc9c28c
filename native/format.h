// Packed weight formats and quantised activation rows, shared by every code path.
#pragma once
#include <cstddef>
#include <cstdint>

namespace outrider {

constexpr int TILE = 16;        // outputs that are interleaved in one weight tile
constexpr int BLOCK = 32;       // inputs that share one quantisation scale
constexpr int ROW_GROUP = 16;   // activation rows that lie side by side, block by block
constexpr int RECORD = 64;      // bytes of one quantised block of one activation row

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

// One block of 32 activations: w . x = d * (integer dot) and the terms that shifted integers need.
struct alignas(64) Record {
  int8_t q[32];
  float d;        // scale
  float s;        // scale times the sum of q, for formats with a minimum
  int32_t sum8;   // -8 sum(q): turns q4 into q4 - 8
  int32_t sum128; // -128 sum(q): turns q8 into q8 - 128
  int32_t pad[4];
};
static_assert(sizeof(Record) == RECORD, "a record is one cache line");

// Activation rows [n, cols] as a product reads them. Record of row r, block b:
// q[((r / 16) * blocks + b) * 16 + r % 16]; float rows are x + r * ld.
struct Acts {
  const float* x;
  size_t ld;
  Record* q;
  int blocks;
};

inline Record* record(const Acts& a, int row, int block) {
  return a.q + (static_cast<size_t>(row / ROW_GROUP) * a.blocks + block) * ROW_GROUP + row % ROW_GROUP;
}
inline size_t record_count(int rows, int cols) {
  return static_cast<size_t>((rows + ROW_GROUP - 1) / ROW_GROUP) * ROW_GROUP * (cols / BLOCK);
}

}  // namespace outrider
