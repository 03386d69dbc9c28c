// Strips of outputs: up to 8 rows against one tile of a matrix.
//
// Integer dots of a block are exact, so only the float accumulation over blocks
// has an order, and it is the same for every number of rows: block after block, and in a block
// first the dot, then the minimum.
#pragma once
#include "memory/prefetch.h"
#include "paths/path.h"
#include "paths/simd.h"
#include "weights/matrix.h"

namespace outrider {
namespace {

using Strip = float[STRIP_ROWS][TILE];

template <Kind KIND>
inline void load_block(const uint8_t* p, W* w) {
  if constexpr (four_bit(KIND)) {
    for (int c = 0; c < 4; c++) {
      const W t = load_bytes(p + 64 * c);
      w[2 * c] = low_half(t);
      w[2 * c + 1] = high_half(t);
    }
  } else {
    for (int c = 0; c < 8; c++) w[c] = load_bytes(p + 64 * c);
  }
}

// Ask for one block's share of the tile that comes next, integers and scales.
template <Kind KIND>
[[gnu::always_inline]] inline void ask_for_block(const uint8_t* next, int b) {
  constexpr size_t BYTES = quant_bytes(KIND) + scale_bytes(KIND);
  ask_for(next + b * BYTES, BYTES);
}

template <Kind KIND>
inline I dot_block(const W* w, const int8_t* x, const BlockScale& s) {
  I a = splat(KIND == Kind::Q4 ? s.sum8 : KIND == Kind::Q8 && BIASED ? s.sum128 : 0);
  const int32_t* q = reinterpret_cast<const int32_t*>(x);
#pragma GCC unroll 8
  for (int c = 0; c < 8; c++) a = KIND == Kind::Q8 ? dot8(a, w[c], q[c]) : dot4(a, w[c], q[c]);
  return a;
}

template <Kind KIND, int R>
void quantised_strip(const uint8_t* tile, const uint8_t* next, int cols, const int8_t* x,
                     const BlockScale* x_scales, Strip out) {
  const int blocks = cols / BLOCK;
  const uint8_t* scales = tile + blocks * quant_bytes(KIND);
  F acc[R];
  for (int i = 0; i < R; i++) acc[i] = splat(0.0f);
  for (int b = 0; b < blocks; b++) {
    W w[8];
    load_block<KIND>(tile + b * quant_bytes(KIND), w);
    const uint16_t* s = reinterpret_cast<const uint16_t*>(scales + b * scale_bytes(KIND));
    const F d = from_half(s);
    const F m = has_minimum(KIND) ? from_half(s + 16) : d;
    ask_for_block<KIND>(next, b);
#pragma GCC unroll 8
    for (int i = 0; i < R; i++) {
      const BlockScale& r = x_scales[b * STRIP_ROWS + i];
      const int8_t* q = x + (b * STRIP_ROWS + i) * LINE;
      acc[i] = fma(to_float(dot_block<KIND>(w, q, r)), mul(d, splat(r.d)), acc[i]);
      if constexpr (has_minimum(KIND)) acc[i] = fma(m, splat(r.s), acc[i]);
    }
  }
  for (int i = 0; i < R; i++) store(out[i], acc[i]);
}

// Inputs one after another, for every output.
template <Kind KIND, int R>
void float_strip(const uint8_t* tile, int cols, const float* x, size_t ld, Strip out) {
  F acc[R];
  for (int i = 0; i < R; i++) acc[i] = splat(0.0f);
  if constexpr (KIND == Kind::F32) {
    const float* w = reinterpret_cast<const float*>(tile);
    for (int k = 0; k < cols; k++) {
      const F v = load(w + k * TILE);
      for (int i = 0; i < R; i++) acc[i] = fma(v, splat(x[i * ld + k]), acc[i]);
    }
  } else {
    const uint16_t* w = reinterpret_cast<const uint16_t*>(tile);
    int k = 0;
    for (; k + 1 < cols; k += 2) {
      const F even = even_bf16(w + k * TILE), odd = odd_bf16(w + k * TILE);
      for (int i = 0; i < R; i++) {
        acc[i] = fma(even, splat(x[i * ld + k]), acc[i]);
        acc[i] = fma(odd, splat(x[i * ld + k + 1]), acc[i]);
      }
    }
    if (k < cols) {
      const F even = even_bf16(w + k * TILE);
      for (int i = 0; i < R; i++) acc[i] = fma(even, splat(x[i * ld + k]), acc[i]);
    }
  }
  for (int i = 0; i < R; i++) store(out[i], acc[i]);
}

// One tile of a matrix: where it lies and which output columns it holds.
struct Tile {
  const Part& part;
  const uint8_t* data;
  int col;
  int width;

  const uint8_t* after() const { return data + part.stride; }
};

inline Tile tile_at(const Matrix& m, int tile) {
  const Part& p = part_of(m, tile);
  const int local = tile - p.first_tile;
  const int left = p.rows - local * TILE;
  return {p, p.data + static_cast<size_t>(local) * p.stride, p.first_col + local * TILE,
          left < TILE ? left : TILE};
}

template <Kind KIND, int R>
void strip_of(const Tile& t, const uint8_t* next, const Acts& acts, int row, Strip out) {
  if constexpr (quantised(KIND)) {
    const size_t line = line_of(acts, row);
    quantised_strip<KIND, R>(t.data, next, t.part.cols, acts.q + line * LINE, acts.scale + line, out);
  } else {
    float_strip<KIND, R>(t.data, t.part.cols, acts.x + row * acts.ld, acts.ld, out);
  }
}

using StripFn = void (*)(const Tile&, const uint8_t*, const Acts&, int, Strip);
#define OUTRIDER_STRIPS(K)                                                                   \
  {strip_of<K, 1>, strip_of<K, 2>, strip_of<K, 3>, strip_of<K, 4>, strip_of<K, 5>, strip_of<K, 6>, \
   strip_of<K, 7>, strip_of<K, 8>}
constexpr StripFn STRIPS[6][STRIP_ROWS] = {
    OUTRIDER_STRIPS(Kind::Q4),  OUTRIDER_STRIPS(Kind::Q4M),  OUTRIDER_STRIPS(Kind::Q8),
    OUTRIDER_STRIPS(Kind::Q8M), OUTRIDER_STRIPS(Kind::BF16), OUTRIDER_STRIPS(Kind::F32)};
#undef OUTRIDER_STRIPS

}  // namespace
}  // namespace outrider
