#include "products/ahead.h"

namespace outrider {
namespace {

constexpr size_t AHEAD_BYTES = 96 << 10;  // what a thread asks for at a meeting

// Ask for tiles [first, first + tiles) of a matrix, up to `most` bytes.
void look_ahead(const Matrix& m, int first, int tiles, size_t most, Ahead& ahead, int part) {
  const Part& p = part_of(m, first);
  const size_t bytes = static_cast<size_t>(tiles) * p.stride;
  ahead.data[part] = p.data + static_cast<size_t>(first - p.first_tile) * p.stride;
  ahead.bytes[part] = bytes < most ? bytes : most;
}

}  // namespace

Ahead ahead_of(const Worker& worker, const Matrix& m) {
  Ahead ahead;
  int low, high;
  worker.share(m.tiles, low, high);
  if (low < high) look_ahead(m, low, high - low, AHEAD_BYTES, ahead, 0);
  return ahead;
}

Ahead ahead_of_pairs(const Worker& worker, const Matrix& m) {
  Ahead ahead;
  int low, high;
  worker.share(m.tiles / 4, low, high);
  if (low >= high) return ahead;
  for (int side = 0; side < 2; side++)
    look_ahead(m, side * m.tiles / 2 + 2 * low, 2 * (high - low), AHEAD_BYTES / 2, ahead, side);
  return ahead;
}

}  // namespace outrider
