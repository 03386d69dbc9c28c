// Gumbel noise by counter, and the head's best output without its logits.
#pragma once
#include "paths/path.h"
#include "paths/product.h"
#include "paths/simd.h"

namespace outrider {
namespace {

// ln(x) of positive normal doubles, within 2 units in the last place: x = 2^k m with m in
// [sqrt(1/2), sqrt(2)), ln(m) = 2 atanh(s) with s = (m - 1) / (m + 1), |s| < 0.1716.
inline void log16(double* x) {
  for (int i = 0; i < 16; i++) {
    uint64_t word;
    __builtin_memcpy(&word, x + i, 8);
    // Subtracting the bits of sqrt(1/2) moves the cut between exponents to sqrt(1/2).
    const uint64_t shifted = word - 0x3fe6a09e667f3bcdull;
    const int32_t k = static_cast<int32_t>(static_cast<int64_t>(shifted) >> 52);
    word -= static_cast<uint64_t>(static_cast<int64_t>(k)) << 52;
    double m;
    __builtin_memcpy(&m, &word, 8);
    const double s = (m - 1.0) / (m + 1.0);
    const double z = s * s;
    double p = 2.0 / 23;
    p = p * z + 2.0 / 21;
    p = p * z + 2.0 / 19;
    p = p * z + 2.0 / 17;
    p = p * z + 2.0 / 15;
    p = p * z + 2.0 / 13;
    p = p * z + 2.0 / 11;
    p = p * z + 2.0 / 9;
    p = p * z + 2.0 / 7;
    p = p * z + 2.0 / 5;
    p = p * z + 2.0 / 3;
    const double tail = s * z * p + static_cast<double>(k) * 1.90821492927058770002e-10;
    x[i] = static_cast<double>(k) * 6.93147180369123816490e-01 + (2.0 * s + tail);
  }
}

// The random words of 16 ids; see philox.py for the definition.
inline I words16(I id, const Draw& key, uint32_t stream) {
  I c0 = id, c1 = splat(static_cast<int32_t>(key.position));
  I c2 = splat(static_cast<int32_t>(stream)), c3 = splat(0);
  uint32_t k0 = key.seed_low, k1 = key.seed_high;
  for (int round = 0; round < 10; round++) {
    I low0, high0, low1, high1;
    multiply(c0, 0xD2511F53u, low0, high0);
    multiply(c2, 0xCD9E8D57u, low1, high1);
    c0 = bit_xor(bit_xor(high1, c1), splat(static_cast<int32_t>(k0)));
    c2 = bit_xor(bit_xor(high0, c3), splat(static_cast<int32_t>(k1)));
    c1 = low1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c0;
}

// Standard Gumbel noise of 16 words: -ln(-ln(u)), u = (word + 0.5) / 2^32.
inline F noise_of(I words) {
  alignas(64) int32_t word[16];
  alignas(64) double u[16];
  alignas(64) float out[16];
  store_int(word, words);
  for (int i = 0; i < 16; i++) u[i] = (static_cast<double>(static_cast<uint32_t>(word[i])) + 0.5) * 0x1p-32;
  log16(u);
  for (int i = 0; i < 16; i++) u[i] = -u[i];
  log16(u);
  for (int i = 0; i < 16; i++) out[i] = static_cast<float>(-u[i]);
  return load(out);
}

void gumbel(const Draw& key, uint32_t stream, const int64_t* ids, int64_t count, float* out) {
  for (int64_t at = 0; at < count; at += 16) {
    const int n = count - at < 16 ? static_cast<int>(count - at) : 16;
    alignas(64) int32_t id[16] = {};
    for (int i = 0; i < n; i++) id[i] = static_cast<int32_t>(static_cast<uint32_t>(ids[at + i]));
    store_part(out + at, noise_of(words16(load_int(id), key, stream)), n);
  }
}

constexpr float MOST_NOISE = 23.0f;  // -ln(-ln(1 - 2^-33)) is below it

// A little more than the noise of 16 words, for a fraction of its cost.
//
// Since -ln(u) >= 1 - u, the noise is at most -ln(1 - u), and 1 - u is at least h / 2^23, h being the
// first 23 bits of the word's complement. The bits of h as a float, over 2^23, are 127 plus its
// logarithm to base 2 from below: the chord lies under the curve. 0 counts as 2^-127.
inline F noise_bound(I words) {
  const I h = shift_right9(bit_xor(words, splat(-1)));
  const float ln2 = 0.693147181f;
  return fma(to_float(bits(to_float(h))), splat(-ln2 * 0x1p-23f), splat(150.0f * ln2 + 1e-3f));
}

// Add noise to the outputs that could win with it. Returns whether any could.
inline bool add_noise(F& value, F best, I id, const Draw& draw) {
  if (!any(at_most(best, add(value, splat(MOST_NOISE))))) return false;
  const I words = words16(id, draw, 0);
  if (!any(at_most(best, add(value, noise_bound(words))))) return false;
  value = add(value, noise_of(words));
  return true;
}

// NaN never beats anything; of equal outputs the one with the lowest id wins, whenever it comes.
inline void offer(Best& best, F value, I id) {
  const F old = load(best.value);
  const I old_id = load_int(best.id);
  const M wins = either(less(old, value), both(at_most(old, value), less(id, old_id)));
  store(best.value, pick(wins, value, old));
  store_int(best.id, pick(wins, id, old_id));
}

void best(const Matrix& m, int low, int high, const Acts& acts, int n, const Draw* draws,
          const Shift* shift, Best* best) {
  alignas(64) Strip strip;
  Strips strips(m, acts, n);
  for (int tile = low; tile < high; tile++) {
    const Tile t = tile_at(m, tile);
    const M real = between(0, t.width);
    const I id = add(lanes(), splat(t.col));
    const I noise_id = shift && shift->ids ? load_int(shift->ids + t.col) : id;
    strips.open(t, t.after());
    for (int row = 0, count; row < n; row += count) {
      count = strips.next(row, strip);
      for (int i = 0; i < count; i++) {
        Best& b = best[row + i];
        F value = load(strip[i]);
        if (shift) value = add(load_part(shift->rows[row + i] + t.col, t.width), value);
        // 0 times a finite output is 0, and NaN times one that is not.
        store(b.poison, fma(value, splat(0.0f), load(b.poison)));
        if (draws && draws[row + i].temperature > 0.0f) {
          value = div(value, splat(draws[row + i].temperature));
          if (!add_noise(value, load(b.value), noise_id, draws[row + i])) continue;
        }
        offer(b, pick(real, value, splat(-__builtin_inff())), id);
      }
    }
  }
}

}  // namespace
}  // namespace outrider
