// Strips of up to 8 rows with AMX tiles, a block of 32 inputs in one tile product. The integer dots
// are the same numbers as those of product.h, and the float accumulation is the same sequence, so a
// row's bits do not tell which ran.
#pragma once
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "paths/simd.h"
#include "paths/strips.h"
#include "weights/matrix.h"

namespace outrider {
namespace {

constexpr int WIDE_MIN = 16;  // fewer rows are as fast in product.h

// Whether the processor has int8 tiles and the kernel lets this process use them.
inline bool wide_available() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const unsigned tile = 1u << 24, int8 = 1u << 25;
  if ((d & tile) == 0 || (d & int8) == 0) return false;
  constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
inline bool wide_ready() {
  static const bool ready = wide_available();
  return ready;
}

struct alignas(64) TileConfig {
  uint8_t palette, start_row, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
};

// Tiles 0 and 1: dots of 8 rows and 16 outputs. 4 and 5: a block of 8 rows. 6 and 7: weights, 8 quads
// of inputs.
inline void configure_tiles() {
  TileConfig config{};
  config.palette = 1;
  for (int t = 0; t < 8; t++) {
    config.bytes[t] = t == 4 || t == 5 ? LINE : 64;
    config.rows[t] = 8;
  }
  // The operand keeps every field's store alive.
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
}
inline void release_tiles() { asm volatile("tilerelease" : : : "memory"); }

// Signed bytes of one block: [8 quads of inputs][16 outputs][4].
template <Kind KIND>
inline void spread_block(const uint8_t* p, uint8_t* out) {
  W w[8];
  load_block<KIND>(p, w);
  for (int c = 0; c < 8; c++) {
    if (KIND == Kind::Q4) w[c] = _mm512_sub_epi8(w[c], _mm512_set1_epi8(8));
    if (KIND == Kind::Q8) w[c] = bit_xor(w[c], splat(static_cast<int32_t>(0x80808080)));
    _mm512_store_si512(out + 64 * c, w[c]);
  }
}

using Dots = int32_t[STRIP_ROWS][TILE];

// Dots of one block.
template <int SET>
inline void dot_rows(const uint8_t* w, const int8_t* x, int b, Dots dots) {
  const int8_t* lines = x + b * STRIP_ROWS * LINE;
  const uint8_t* weights = w + b * size_t{512};
  if constexpr (SET == 0) {
    _tile_loadd(4, lines, LINE);
    _tile_loadd(6, weights, 64);
    _tile_zero(0);
    _tile_dpbssd(0, 4, 6);
    _tile_stored(0, dots, 64);
  } else {
    _tile_loadd(5, lines, LINE);
    _tile_loadd(7, weights, 64);
    _tile_zero(1);
    _tile_dpbssd(1, 5, 7);
    _tile_stored(1, dots, 64);
  }
}

// Continue the float sums of R rows with the dots of a block.
template <Kind KIND, int R>
inline void add_block(const uint8_t* scales, const BlockScale* x, int b, const Dots dots, F* acc) {
  const uint16_t* s = reinterpret_cast<const uint16_t*>(scales + b * scale_bytes(KIND));
  const F d = from_half(s);
  const F m = has_minimum(KIND) ? from_half(s + 16) : d;
  const BlockScale* r = x + b * STRIP_ROWS;
#pragma GCC unroll 8
  for (int i = 0; i < R; i++) {
    acc[i] = fma(to_float(load_int(dots[i])), mul(d, splat(r[i].d)), acc[i]);
    if constexpr (has_minimum(KIND)) acc[i] = fma(m, splat(r[i].s), acc[i]);
  }
}

// R rows against `blocks` blocks of one tile. The next block's dots are started before the last one's
// are added, so that tile latencies hide behind the float work.
template <Kind KIND, int R>
void wide_rows(const uint8_t* w, const uint8_t* scales, const uint8_t* next, const int8_t* x,
               const BlockScale* x_scales, int blocks, Strip out) {
  alignas(64) Dots first, second;
  F acc[R];
  for (int i = 0; i < R; i++) acc[i] = splat(0.0f);
  dot_rows<0>(w, x, 0, first);
  for (int b = 0; b < blocks; b += 2) {
    if (b + 1 < blocks) dot_rows<1>(w, x, b + 1, second);
    ask_for_block<KIND>(next, b);
    add_block<KIND, R>(scales, x_scales, b, first, acc);
    if (b + 1 == blocks) break;
    if (b + 2 < blocks) dot_rows<0>(w, x, b + 2, first);
    ask_for_block<KIND>(next, b + 1);
    add_block<KIND, R>(scales, x_scales, b + 1, second, acc);
  }
  for (int i = 0; i < R; i++) store(out[i], acc[i]);
}

template <Kind KIND>
void spread_tile(const uint8_t* tile, int blocks, uint8_t* out) {
  for (int b = 0; b < blocks; b++) spread_block<KIND>(tile + b * quant_bytes(KIND), out + b * size_t{512});
}

using SpreadFn = void (*)(const uint8_t*, int, uint8_t*);
using WideFn = void (*)(const uint8_t*, const uint8_t*, const uint8_t*, const int8_t*, const BlockScale*,
                        int, Strip);
constexpr SpreadFn SPREADS[4] = {spread_tile<Kind::Q4>, spread_tile<Kind::Q4M>, spread_tile<Kind::Q8>,
                                 spread_tile<Kind::Q8M>};
// By (rows + 1) / 2 - 1: an odd last row is computed with a stale neighbour, which is ignored.
#define OUTRIDER_WIDE(K) {wide_rows<K, 2>, wide_rows<K, 4>, wide_rows<K, 6>, wide_rows<K, 8>}
constexpr WideFn WIDES[4][4] = {OUTRIDER_WIDE(Kind::Q4), OUTRIDER_WIDE(Kind::Q4M), OUTRIDER_WIDE(Kind::Q8),
                                OUTRIDER_WIDE(Kind::Q8M)};
#undef OUTRIDER_WIDE

}  // namespace
}  // namespace outrider
