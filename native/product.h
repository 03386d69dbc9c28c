// Matrix products. Integer dots of a block are exact, so only the float accumulation over blocks
// has an order, and it is the same for every number of rows: block after block, and in a block
// first the dot, then the minimum.
#pragma once

constexpr int STRIP = 8;  // rows that share one pass over a tile
using Strip = float[STRIP][TILE];

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

template <Kind KIND>
inline I dot_block(const W* w, const Record& x) {
  I a = splat(KIND == Kind::Q4 ? x.sum8 : KIND == Kind::Q8 && BIASED ? x.sum128 : 0);
  const int32_t* q = reinterpret_cast<const int32_t*>(x.q);
#pragma GCC unroll 8
  for (int c = 0; c < 8; c++) a = KIND == Kind::Q8 ? dot8(a, w[c], q[c]) : dot4(a, w[c], q[c]);
  return a;
}

template <Kind KIND, int R>
void quantised_strip(const uint8_t* tile, int cols, const Record* x, Strip out) {
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
    __builtin_prefetch(tile + b * quant_bytes(KIND) + AHEAD);
#pragma GCC unroll 8
    for (int i = 0; i < R; i++) {
      const Record& r = x[b * ROW_GROUP + i];
      acc[i] = fma(to_float(dot_block<KIND>(w, r)), mul(d, splat(r.d)), acc[i]);
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

template <Kind KIND, int R>
void strip_of(const Part& p, const uint8_t* tile, const Acts& acts, int row, Strip out) {
  if constexpr (quantised(KIND)) {
    quantised_strip<KIND, R>(tile, p.cols, record(acts, row, 0), out);
  } else {
    float_strip<KIND, R>(tile, p.cols, acts.x + row * acts.ld, acts.ld, out);
  }
}

using StripFn = void (*)(const Part&, const uint8_t*, const Acts&, int, Strip);
#define OUTRIDER_STRIPS(K)                                                                   \
  {strip_of<K, 1>, strip_of<K, 2>, strip_of<K, 3>, strip_of<K, 4>, strip_of<K, 5>, strip_of<K, 6>, \
   strip_of<K, 7>, strip_of<K, 8>}
constexpr StripFn STRIPS[6][STRIP] = {
    OUTRIDER_STRIPS(Kind::Q4),  OUTRIDER_STRIPS(Kind::Q4M),  OUTRIDER_STRIPS(Kind::Q8),
    OUTRIDER_STRIPS(Kind::Q8M), OUTRIDER_STRIPS(Kind::BF16), OUTRIDER_STRIPS(Kind::F32)};
#undef OUTRIDER_STRIPS

// One tile of a matrix: where it lies and which output columns it holds.
struct Tile {
  const Part& part;
  const uint8_t* data;
  int col;
  int width;
};

inline Tile tile_at(const Matrix& m, int tile) {
  const Part& p = part_of(m, tile);
  const int local = tile - p.first_tile;
  const int left = p.rows - local * TILE;
  return {p, p.data + static_cast<size_t>(local) * p.stride, p.first_col + local * TILE,
          left < TILE ? left : TILE};
}

// `count` rows (up to STRIP, within one row group) of one tile, bias included.
inline void strip_rows(const Matrix& m, const Tile& t, const Acts& acts, int row, int count,
                       Strip out) {
  STRIPS[static_cast<int>(t.part.kind)][count - 1](t.part, t.data, acts, row, out);
  if (!m.bias) return;
  const F bias = load_part(m.bias + t.col, t.width);
  for (int i = 0; i < count; i++) store(out[i], add(load(out[i]), bias));
}

inline int strip_count(int row, int n) { return n - row < STRIP ? n - row : STRIP; }

void product(const Matrix& m, int low, int high, const Acts& acts, int n, float* out, size_t ld,
             bool accumulate) {
  alignas(64) Strip strip;
  for (int tile = low; tile < high; tile++) {
    const Tile t = tile_at(m, tile);
    for (int row = 0; row < n; row += STRIP) {
      const int count = strip_count(row, n);
      strip_rows(m, t, acts, row, count, strip);
      for (int i = 0; i < count; i++) {
        float* y = out + (row + i) * ld + t.col;
        const F value = load(strip[i]);
        store_part(y, accumulate ? add(load_part(y, t.width), value) : value, t.width);
      }
    }
  }
}

void gated(const Matrix& m, int low, int high, const Acts& acts, int n, const Acts& out) {
  alignas(64) Strip gate[2], up[2];
  const int half = m.tiles / 2;
  for (int pair = low; pair < high; pair++) {
    for (int row = 0; row < n; row += STRIP) {
      const int count = strip_count(row, n);
      for (int side = 0; side < 2; side++) {
        strip_rows(m, tile_at(m, 2 * pair + side), acts, row, count, gate[side]);
        strip_rows(m, tile_at(m, half + 2 * pair + side), acts, row, count, up[side]);
      }
      for (int i = 0; i < count; i++) {
        const F a = silu(load(gate[0][i]), load(up[0][i]));
        const F b = silu(load(gate[1][i]), load(up[1][i]));
        if (out.q) quantize_block(a, b, record(out, row + i, pair));
        if (out.x) {
          float* y = const_cast<float*>(out.x) + (row + i) * out.ld + pair * BLOCK;
          store(y, a);
          store(y + 16, b);
        }
      }
    }
  }
}
