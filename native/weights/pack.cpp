#include "weights/pack.h"

#include <cstring>
#include <stdexcept>

#include "weights/blocks.h"

namespace outrider {
namespace {

Kind kind_of(const std::string& format) {
  if (format == "Q4_0") return Kind::Q4;
  if (format == "Q4_1" || format == "Q4_K") return Kind::Q4M;
  if (format == "Q8_0" || format == "Q5_0" || format == "Q6_K") return Kind::Q8;
  if (format == "Q5_1" || format == "Q5_K") return Kind::Q8M;
  if (format == "BF16") return Kind::BF16;
  if (format == "F32" || format == "F16") return Kind::F32;
  throw std::invalid_argument("no kernel for weight format " + format);
}

size_t tile_bytes(Kind kind, int cols) {
  size_t bytes;
  if (quantised(kind)) {
    bytes = static_cast<size_t>(cols / BLOCK) * (quant_bytes(kind) + scale_bytes(kind));
  } else if (kind == Kind::BF16) {
    bytes = static_cast<size_t>((cols + 1) / 2) * 2 * TILE * 2;
  } else {
    bytes = static_cast<size_t>(cols) * TILE * 4;
  }
  return (bytes + 63) / 64 * 64;
}

// Interleave block b of output j into a tile.
void place(const Part& p, uint8_t* tile, int j, int b, const Unpacked& u) {
  const int blocks = p.cols / BLOCK;
  uint8_t* quants = tile + b * quant_bytes(p.kind);
  for (int k = 0; k < BLOCK; k++) {
    if (four_bit(p.kind)) {
      uint8_t& byte = quants[k / 8 * 64 + 4 * j + k % 4];
      byte = k % 8 < 4 ? u.q[k] : static_cast<uint8_t>(byte | u.q[k] << 4);
    } else {
      quants[k / 4 * 64 + 4 * j + k % 4] = u.q[k];
    }
  }
  uint8_t* scales = tile + blocks * quant_bytes(p.kind) + b * scale_bytes(p.kind);
  memcpy(scales + 2 * j, &u.d, 2);
  if (has_minimum(p.kind)) memcpy(scales + 32 + 2 * j, &u.m, 2);
}

void pack_floats(const Part& p, const RawPart& raw, uint8_t* tile, int j, int row) {
  const size_t at = static_cast<size_t>(row) * raw.cols;
  for (int k = 0; k < raw.cols; k++) {
    if (p.kind == Kind::BF16) {
      memcpy(tile + (static_cast<size_t>(k / 2 * TILE + j) * 2 + k % 2) * 2, raw.data + (at + k) * 2, 2);
    } else if (raw.format == "F32") {
      memcpy(tile + (static_cast<size_t>(k) * TILE + j) * 4, raw.data + (at + k) * 4, 4);
    } else {
      uint16_t half;
      memcpy(&half, raw.data + (at + k) * 2, 2);
      const float value = float_of(half);
      memcpy(tile + (static_cast<size_t>(k) * TILE + j) * 4, &value, 4);
    }
  }
}

// Outputs past the last one stay zero: integers 0, scale 0, floats 0.
void pack_tile(const Part& p, const RawPart& raw, const BlockFormat* format, int index) {
  uint8_t* tile = p.data + index * p.stride;
  for (int j = 0; j < TILE && index * TILE + j < p.rows; j++) {
    const int row = index * TILE + j;
    if (!format) {
      pack_floats(p, raw, tile, j, row);
      continue;
    }
    const int groups = p.cols / format->weights;
    const int per = format->weights / BLOCK;
    const uint8_t* src = raw.data + static_cast<size_t>(row) * groups * format->bytes;
    Unpacked u[8];
    for (int g = 0; g < groups; g++, src += format->bytes) {
      format->unpack(src, u);
      for (int b = 0; b < per; b++) place(p, tile, j, g * per + b, u[b]);
    }
  }
}

Part part_for(const RawPart& raw, const Matrix& so_far, const BlockFormat* format) {
  if (format && raw.cols % format->weights)
    throw std::invalid_argument(raw.format + " rows must be a multiple of " +
                                std::to_string(format->weights) + " weights");
  Part p{};
  p.kind = kind_of(raw.format);
  p.rows = raw.rows;
  p.cols = raw.cols;
  p.tiles = (raw.rows + TILE - 1) / TILE;
  p.first_tile = so_far.tiles;
  p.first_col = so_far.rows;
  p.stride = tile_bytes(p.kind, raw.cols);
  return p;
}

}  // namespace

std::unique_ptr<Packed> pack(Pool& pool, Arena& arena, const std::vector<RawPart>& raw, const float* bias) {
  auto packed = std::make_unique<Packed>();
  Matrix& m = packed->matrix;
  m.cols = raw.at(0).cols;
  std::vector<const BlockFormat*> formats;
  size_t total = 0;
  for (const RawPart& r : raw) {
    if (r.cols != m.cols) throw std::invalid_argument("stacked matrices differ in width");
    formats.push_back(block_format(r.format));
    const Part p = part_for(r, m, formats.back());
    (quantised(p.kind) ? m.any_quantised : m.any_float) = true;
    m.tiles += p.tiles;
    m.rows += p.rows;
    total += p.tiles * p.stride;
    packed->parts.push_back(p);
  }
  if (static_cast<uint64_t>(m.tiles) >= MOST_ITEMS)
    throw std::invalid_argument("a matrix of " + std::to_string(m.rows) + " rows is too large");
  const Arena::Piece piece = arena.take(total);
  packed->memory = piece.memory;
  packed->bytes = total;
  uint8_t* at = piece.data;
  for (Part& p : packed->parts) {
    p.data = at;
    at += p.tiles * p.stride;
  }
  m.parts = packed->parts.data();
  m.num_parts = static_cast<int>(packed->parts.size());
  if (bias) packed->bias.assign(bias, bias + m.rows);
  m.bias = bias ? packed->bias.data() : nullptr;
  pool.run([&](Worker& worker) {
    int low, high;
    while (worker.take(m.tiles, 16, low, high)) {
      for (int tile = low; tile < high; tile++) {
        const Part& p = part_of(m, tile);
        const size_t index = static_cast<size_t>(&p - m.parts);
        pack_tile(p, raw[index], formats[index], tile - p.first_tile);
      }
    }
  });
  return packed;
}

}  // namespace outrider
