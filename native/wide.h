// Strips of up to 16 rows with AMX tiles. The integer dots are the same numbers as those of
// product.h, and the float accumulation is the same sequence, so a row's bits do not tell which ran.
#pragma once
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

constexpr int WIDE_MIN = 8;      // fewer rows run in product.h
constexpr int WIDE_BLOCKS = 4;   // blocks whose dots are in flight together

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

// Tiles 0 to 3: dots [rows, 16]. 4 and 5: activations [rows, 32 bytes]. 6 and 7: weights [8, 64 bytes].
inline void configure_tiles(int rows) {
  TileConfig config{};
  config.palette = 1;
  for (int t = 0; t < 8; t++) {
    config.bytes[t] = t == 4 || t == 5 ? 32 : 64;
    config.rows[t] = static_cast<uint8_t>(t < 6 ? rows : 8);
  }
  // The barrier in the operand list keeps every field's store alive.
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

using Dots = int32_t[WIDE_BLOCKS][ROW_GROUP][TILE];

#define OUTRIDER_DOT(C, A, B)                                    \
  _tile_loadd(A, x + (b + C) * ROW_GROUP, RECORD);               \
  _tile_loadd(B, w + (b + C) * size_t{512}, 64);                 \
  _tile_zero(C);                                                 \
  _tile_dpbssd(C, A, B);                                         \
  _tile_stored(C, dots[C], 64);

inline void dot_four(const uint8_t* w, const Record* x, int b, int count, Dots dots) {
  if (count > 0) { OUTRIDER_DOT(0, 4, 6) }
  if (count > 1) { OUTRIDER_DOT(1, 5, 7) }
  if (count > 2) { OUTRIDER_DOT(2, 4, 6) }
  if (count > 3) { OUTRIDER_DOT(3, 5, 7) }
}
#undef OUTRIDER_DOT

// Rows of one row group against blocks [from, upto) of one tile, continuing the sums in `out`.
template <Kind KIND, int R>
void wide_rows(const uint8_t* w, const uint8_t* scales, const Record* x, int blocks, float (*out)[TILE]) {
  alignas(64) Dots dots;
  F acc[R];
  for (int i = 0; i < R; i++) acc[i] = splat(0.0f);
  for (int b = 0; b < blocks; b += WIDE_BLOCKS) {
    const int count = blocks - b < WIDE_BLOCKS ? blocks - b : WIDE_BLOCKS;
    dot_four(w, x, b, count, dots);
    for (int k = 0; k < count; k++) {
      const uint16_t* s = reinterpret_cast<const uint16_t*>(scales + (b + k) * scale_bytes(KIND));
      const F d = from_half(s);
      const F m = has_minimum(KIND) ? from_half(s + 16) : d;
      const Record* r = x + (b + k) * ROW_GROUP;
#pragma GCC unroll 16
      for (int i = 0; i < R; i++) {
        acc[i] = fma(to_float(load_int(dots[k][i])), mul(d, splat(r[i].d)), acc[i]);
        if constexpr (has_minimum(KIND)) acc[i] = fma(m, splat(r[i].s), acc[i]);
      }
    }
  }
  for (int i = 0; i < R; i++) store(out[i], acc[i]);
}

template <Kind KIND>
void spread_tile(const uint8_t* tile, int blocks, uint8_t* out) {
  for (int b = 0; b < blocks; b++) {
    __builtin_prefetch(tile + b * quant_bytes(KIND) + AHEAD);
    spread_block<KIND>(tile + b * quant_bytes(KIND), out + b * size_t{512});
  }
}

using SpreadFn = void (*)(const uint8_t*, int, uint8_t*);
using WideFn = void (*)(const uint8_t*, const uint8_t*, const Record*, int, float (*)[TILE]);
constexpr SpreadFn SPREADS[4] = {spread_tile<Kind::Q4>, spread_tile<Kind::Q4M>, spread_tile<Kind::Q8>,
                                 spread_tile<Kind::Q8M>};
#define OUTRIDER_WIDE(K) \
  {wide_rows<K, 2>, wide_rows<K, 4>, wide_rows<K, 6>, wide_rows<K, 8>, wide_rows<K, 12>, wide_rows<K, 16>}
constexpr WideFn WIDES[4][6] = {OUTRIDER_WIDE(Kind::Q4), OUTRIDER_WIDE(Kind::Q4M), OUTRIDER_WIDE(Kind::Q8),
                                OUTRIDER_WIDE(Kind::Q8M)};
#undef OUTRIDER_WIDE
constexpr int WIDE_COUNTS[6] = {2, 4, 6, 8, 12, 16};

inline int wide_index(int rows) {
  int at = 0;
  while (WIDE_COUNTS[at] < rows) at++;
  return at;
}
