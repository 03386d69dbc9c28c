// Row-wise operators: normalise, quantise, gate, rotate, look up.
#pragma once
#include "paths/simd.h"
#include "weights/matrix.h"

namespace outrider {
namespace {

// exp(x) within 2 units in the last place; 0 below -87.3, infinite above 88.7, NaN kept.
inline F exp16(F x) {
  const float low = -87.33654f, high = 88.72283f;
  const F c = smaller(splat(high), larger(splat(low), x));  // a NaN stays: it is the second operand
  const I n = to_int(mul(c, splat(1.44269504f)));
  const F k = to_float(n);
  F r = fma(k, splat(-0.693145752f), c);
  r = fma(k, splat(-1.42860677e-6f), r);
  F p = splat(1.0f / 5040);
  p = fma(p, r, splat(1.0f / 720));
  p = fma(p, r, splat(1.0f / 120));
  p = fma(p, r, splat(1.0f / 24));
  p = fma(p, r, splat(1.0f / 6));
  p = fma(p, r, splat(0.5f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  const F y = pick(less(splat(high), x), splat(__builtin_inff()), scale2(p, n));
  return pick(less(x, splat(low)), splat(0.0f), y);
}

// exp(x) for x up to 0, relative error below 2e-7: 2^t by its integer part and a minimax polynomial
// of the rest, exactly 1 at 0. NaN is kept; what lies below 2^-126 becomes 2^-126.
inline F exp_negative(F x) {
  const F t = larger(splat(-126.0f), mul(x, splat(1.44269504f)));  // a NaN is the second operand
  const I n = to_int(t);
  const F f = sub(t, to_float(n));
  F p = splat(1.32647273e-3f);
  p = fma(p, f, splat(9.67151299e-3f));
  p = fma(p, f, splat(5.55073358e-2f));
  p = fma(p, f, splat(2.40222424e-1f));
  p = fma(p, f, splat(6.93147004e-1f));
  p = fma(p, f, splat(1.0f));
  return scale2(p, n);
}

inline F silu(F gate, F up) {
  return mul(div(gate, add(splat(1.0f), exp16(sub(splat(0.0f), gate)))), up);
}

void norm(const float* x, const float* weight, float eps, int cols, float* y) {
  F even = splat(0.0f), odd = splat(0.0f);
  int c = 0;
  for (; c + 32 <= cols; c += 32) {
    const F a = load(x + c), b = load(x + c + 16);
    even = fma(a, a, even);
    odd = fma(b, b, odd);
  }
  for (; c < cols; c += 16) {
    const F a = load_part(x + c, cols - c);
    even = fma(a, a, even);
  }
  const float mean = sum_lanes(add(even, odd)) / static_cast<float>(cols);
  // Squares that overflow would make a row of zeros, and zeros make a plausible answer.
  const float scale = mean < __builtin_inff() ? 1.0f / __builtin_sqrtf(mean + eps) : __builtin_nanf("");
  const F inverse = splat(scale);
  for (c = 0; c + 16 <= cols; c += 16) store(y + c, mul(mul(load(x + c), inverse), load(weight + c)));
  if (c < cols) {
    const F a = mul(mul(load_part(x + c, cols - c), inverse), load_part(weight + c, cols - c));
    store_part(y + c, a, cols - c);
  }
}

// Scale of integers up to `limit` for values up to `peak`, and its inverse. Values too small to
// invert count as zero. NaN and infinity give a NaN scale, hence NaN in every result of the row,
// whatever the integers are.
struct Scale {
  float d, inverse;
};
inline Scale scale_for(int32_t peak_bits, float limit) {
  float peak;
  __builtin_memcpy(&peak, &peak_bits, 4);
  if (peak <= 1e-30f) return {0.0f, 0.0f};
  if (!(peak < __builtin_inff())) return {__builtin_nanf(""), 0.0f};
  return {peak / limit, limit / peak};
}

// Integer order of absolute values is their float order, with NaN on top.
inline I magnitude(F a) { return clear_sign(bits(a)); }

// Write block b of one row: its integers and its scales.
inline void quantize_block(F a, F b, const Acts& acts, size_t line) {
  const Scale s = scale_for(max_lanes(larger(magnitude(a), magnitude(b))), 127.0f);
  const I qa = to_int(mul(a, splat(s.inverse))), qb = to_int(mul(b, splat(s.inverse)));
  int8_t* q = acts.q + line * LINE;
  to_int8(q, qa);
  to_int8(q + 16, qb);
  const uint32_t sum = static_cast<uint32_t>(sum_lanes(add(qa, qb)));
  BlockScale& scale = acts.scale[line];
  scale.d = s.d;
  scale.s = s.d * static_cast<float>(static_cast<int32_t>(sum));
  scale.sum8 = static_cast<int32_t>(0u - 8u * sum);
  scale.sum128 = static_cast<int32_t>(0u - 128u * sum);
}

void quantize(const float* x, int cols, const Acts& acts, int row) {
  size_t line = line_of(acts, row);
  for (int b = 0; b < cols / BLOCK; b++, line += STRIP_ROWS)
    quantize_block(load(x + b * BLOCK), load(x + b * BLOCK + 16), acts, line);
}

void swiglu(const float* gate, const float* up, int count, float* out) {
  int c = 0;
  for (; c + 16 <= count; c += 16) store(out + c, silu(load(gate + c), load(up + c)));
  if (c < count)
    store_part(out + c, silu(load_part(gate + c, count - c), load_part(up + c, count - c)), count - c);
}

// Dimension i pairs with i + d / 2; products and sums are rounded one by one. In place is fine.
void rotate(const float* x, const float* cos, const float* sin, int head_dim, float* out) {
  const int half = head_dim / 2;
  for (int c = 0; c < half; c += 16) {
    const int n = half - c;
    const F a = load_part(x + c, n), b = load_part(x + half + c, n);
    const F k = load_part(cos + c, n), s = load_part(sin + c, n);
    store_part(out + c, sub(mul(a, k), mul(b, s)), n);
    store_part(out + half + c, add(mul(b, k), mul(a, s)), n);
  }
}

inline float lane(F a, int j) {
  float t[16];
  store(t, a);
  return t[j];
}

inline float half_at(const uint8_t* scales, int j) {
  return lane(from_half(reinterpret_cast<const uint16_t*>(scales)), j);
}

inline void embed_quantised(const Part& p, const uint8_t* tile, int j, float* out) {
  const int blocks = p.cols / BLOCK;
  const uint8_t* scales = tile + blocks * quant_bytes(p.kind);
  for (int b = 0; b < blocks; b++, scales += scale_bytes(p.kind)) {
    const float d = half_at(scales, j);
    const float m = has_minimum(p.kind) ? half_at(scales + 32, j) : 0.0f;
    const int shift = p.kind == Kind::Q4 ? 8 : p.kind == Kind::Q8 ? 128 : 0;
    for (int k = 0; k < BLOCK; k++) {
      int q;
      if (four_bit(p.kind)) {
        const uint8_t byte = tile[b * 256 + k / 8 * 64 + 4 * j + k % 4];
        q = k % 8 < 4 ? byte & 15 : byte >> 4;
      } else {
        q = tile[b * 512 + k / 4 * 64 + 4 * j + k % 4];
      }
      const float product = d * static_cast<float>(q - shift);
      out[b * BLOCK + k] = has_minimum(p.kind) ? product + m : product;
    }
  }
}

void embed(const Matrix& m, int row, float* out) {
  int at = 0;
  while (at + 1 < m.num_parts && row >= m.parts[at + 1].first_col) at++;
  const Part& p = m.parts[at];
  const int local = row - p.first_col, j = local % TILE;
  const uint8_t* tile = p.data + static_cast<size_t>(local / TILE) * p.stride;
  if (quantised(p.kind)) return embed_quantised(p, tile, j, out);
  for (int k = 0; k < p.cols; k++) {
    if (p.kind == Kind::F32) {
      out[k] = reinterpret_cast<const float*>(tile)[k * TILE + j];
    } else {
      const uint32_t high = reinterpret_cast<const uint16_t*>(tile)[(k / 2 * TILE + j) * 2 + k % 2];
      const uint32_t word = high << 16;
      __builtin_memcpy(out + k, &word, 4);
    }
  }
}

}  // namespace
}  // namespace outrider
