// Matrix products, tile by tile.
#pragma once
#include "memory/prefetch.h"
#include "paths/path.h"
#include "paths/pointwise.h"
#include "paths/simd.h"
#include "paths/strips.h"
#include "weights/matrix.h"

#ifdef OUTRIDER_WIDE_ROWS
#include "paths/wide.h"
#endif

namespace outrider {
namespace {

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

}  // namespace
}  // namespace outrider
