// Matrix products. Integer dots of a block are exact, so only the float accumulation over blocks
// has an order, and it is the same for every number of rows: block after block, and in a block
// first the dot, then the minimum.
#pragma once

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

#if OUTRIDER_PATH == 2 && defined(__AMX_INT8__)
#define OUTRIDER_WIDE_ROWS
#include "paths/wide.h"
#endif

// Turns tiles into strips of outputs, for one range of tiles and one set of rows.
//
// A strip is 8 rows or what is left of them. With AMX a tile is spread to bytes once for all strips.
class Strips {
 public:
  Strips(const Matrix& m, const Acts& acts, int n) : m_(m), acts_(acts), n_(n) {
#ifdef OUTRIDER_WIDE_ROWS
    wide_ = n >= WIDE_MIN && m.any_quantised && m.cols <= WIDE_COLS && wide_ready();
    if (wide_) configure_tiles();
#endif
  }
  ~Strips() {
#ifdef OUTRIDER_WIDE_ROWS
    if (wide_) release_tiles();
#endif
  }
  Strips(const Strips&) = delete;

  // The tile to come and the one to ask for meanwhile.
  void open(const Tile& t, const uint8_t* next) {
    tile_ = &t;
    next_ = next;
    spread_ = false;
#ifdef OUTRIDER_WIDE_ROWS
    spread_ = wide_ && quantised(t.part.kind);
    if (spread_) SPREADS[static_cast<int>(t.part.kind)](t.data, m_.cols / BLOCK, bytes_);
#endif
  }

  // Fill `out` with the outputs, bias included, of the rows from `row` on; returns how many.
  int next(int row, Strip out) {
    const int count = n_ - row < STRIP_ROWS ? n_ - row : STRIP_ROWS;
    const int kind = static_cast<int>(tile_->part.kind);
    if (!spread_) {
      STRIPS[kind][count - 1](*tile_, next_, acts_, row, out);
    } else {
#ifdef OUTRIDER_WIDE_ROWS
      wide_strip(row, count, out);
#endif
    }
    if (m_.bias) {
      const F bias = load_part(m_.bias + tile_->col, tile_->width);
      for (int i = 0; i < count; i++) store(out[i], add(load(out[i]), bias));
    }
    return count;
  }

 private:
  const Matrix& m_;
  const Acts& acts_;
  int n_;
  const Tile* tile_ = nullptr;
  const uint8_t* next_ = nullptr;
  bool spread_ = false;
#ifdef OUTRIDER_WIDE_ROWS
  void wide_strip(int row, int count, Strip out) {
    const Kind kind = tile_->part.kind;
    const int blocks = m_.cols / BLOCK;
    const uint8_t* scales = tile_->data + blocks * quant_bytes(kind);
    const size_t line = line_of(acts_, row);
    WIDES[static_cast<int>(kind)][(count + 1) / 2 - 1](bytes_, scales, next_, acts_.q + line * LINE,
                                                       acts_.scale + line, blocks, out);
  }

  bool wide_ = false;
  static constexpr int WIDE_COLS = 4096;
  alignas(64) uint8_t bytes_[(WIDE_COLS + BLOCK) * TILE];
#endif
};

// While a tile is read, the one two on is asked for: with fewer rows than 8, memory takes longer to
// come than one tile to compute. Past a run's end that is what `after` names, if anything.
void product(const Matrix& m, int low, int high, const Acts& acts, int n, const Outputs& out,
             const uint8_t* after) {
  alignas(64) Strip strip;
  Strips strips(m, acts, n);
  for (int tile = low; tile < high; tile++) {
    const Tile t = tile_at(m, tile);
    const int beyond = tile + 2 - high;
    strips.open(t, after && beyond >= 0 ? after + beyond * t.part.stride : t.after() + t.part.stride);
    for (int row = 0, count; row < n; row += count) {
      for (int i = row; i < n && i < row + STRIP_ROWS; i++) ask_to_write(out.data + i * out.ld + t.col, 1);
      count = strips.next(row, strip);
      for (int i = 0; i < count; i++) {
        float* y = out.data + (row + i) * out.ld + t.col;
        const F value = load(strip[i]);
        store_part(y, out.add ? add(load_part(y, t.width), value) : value, t.width);
      }
    }
  }
}

// Tile `side` of a pair: two of gate, two of up.
inline Tile paired_tile(const Matrix& m, int pair, int side) {
  return tile_at(m, (side < 2 ? 0 : m.tiles / 2) + 2 * pair + side % 2);
}

// One block of the first strip of rows.
inline void ask_to_write_block(const Acts& out, int n, int block) {
  if (!out.q) return;
  const int rows = n < STRIP_ROWS ? n : STRIP_ROWS;
  ask_to_write(out.q + block * STRIP_ROWS * LINE, rows * LINE);
  ask_to_write(out.scale + block * STRIP_ROWS, rows * sizeof(BlockScale));
}

// Gate and up columns [32 low, 32 high): four tiles a pair, row group by row group.
void gated(const Matrix& m, int low, int high, const Acts& acts, int n, const Acts& out, float* wide,
           const uint8_t* after) {
  alignas(64) Strip strip;
  Strips strips(m, acts, n);
  for (int pair = low; pair < high; pair++) {
    for (int side = 0; side < 4; side++) {
      const Tile t = paired_tile(m, pair, side);
      const uint8_t* next;
      if (side < 2) {
        next = paired_tile(m, pair, side + 2).data;
      } else if (after && pair + 1 == high) {
        next = after + (side - 2) * t.part.stride;
      } else {
        next = paired_tile(m, pair, side - 2).after() + t.part.stride;
      }
      strips.open(t, next);
      if (side == 0) ask_to_write_block(out, n, pair);
      for (int row = 0, count; row < n; row += count) {
        count = strips.next(row, strip);
        for (int i = 0; i < count; i++) store(wide + ((row + i) * 4 + side) * TILE, load(strip[i]));
      }
    }
    for (int row = 0; row < n; row++) {
      const float* y = wide + row * 4 * TILE;
      const F a = silu(load(y), load(y + 2 * TILE)), b = silu(load(y + TILE), load(y + 3 * TILE));
      if (out.q) quantize_block(a, b, out, line_of(out, row) + pair * STRIP_ROWS);
      if (out.x) {
        float* z = const_cast<float*>(out.x) + row * out.ld + pair * BLOCK;
        store(z, a);
        store(z + 16, b);
      }
    }
  }
}
