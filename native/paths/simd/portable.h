// Sixteen lanes in plain C++.
#pragma once
#include <cstdint>
#include <cstring>

namespace outrider {
namespace {

struct F { float v[16]; };
struct I { int32_t v[16]; };
struct M { bool v[16]; };
struct W { uint8_t v[64]; };
constexpr bool BIASED = false;  // dot8 multiplies by q8 - 128

template <class R, class Fn>
inline R each(Fn fn) {
  R r;
  for (int i = 0; i < 16; i++) r.v[i] = fn(i);
  return r;
}
inline F load(const float* p) { return each<F>([&](int i) { return p[i]; }); }
inline void store(float* p, F a) { memcpy(p, a.v, sizeof a.v); }
inline F load_part(const float* p, int count) {
  return each<F>([&](int i) { return i < count ? p[i] : 0.0f; });
}
inline void store_part(float* p, F a, int count) {
  for (int i = 0; i < 16 && i < count; i++) p[i] = a.v[i];
}
inline F splat(float a) { return each<F>([&](int) { return a; }); }
inline I splat(int32_t a) { return each<I>([&](int) { return a; }); }
inline F add(F a, F b) { return each<F>([&](int i) { return a.v[i] + b.v[i]; }); }
inline F sub(F a, F b) { return each<F>([&](int i) { return a.v[i] - b.v[i]; }); }
inline F mul(F a, F b) { return each<F>([&](int i) { return a.v[i] * b.v[i]; }); }
inline F div(F a, F b) { return each<F>([&](int i) { return a.v[i] / b.v[i]; }); }
inline F fma(F a, F b, F c) { return each<F>([&](int i) { return a.v[i] * b.v[i] + c.v[i]; }); }
inline F larger(F a, F b) { return each<F>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; }); }
inline F smaller(F a, F b) { return each<F>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; }); }
inline M less(F a, F b) { return each<M>([&](int i) { return a.v[i] < b.v[i]; }); }
inline M at_most(F a, F b) { return each<M>([&](int i) { return a.v[i] <= b.v[i]; }); }
inline M less(I a, I b) { return each<M>([&](int i) { return a.v[i] < b.v[i]; }); }
inline M either(M a, M b) { return each<M>([&](int i) { return a.v[i] || b.v[i]; }); }
inline M both(M a, M b) { return each<M>([&](int i) { return a.v[i] && b.v[i]; }); }
inline F pick(M m, F a, F b) { return each<F>([&](int i) { return m.v[i] ? a.v[i] : b.v[i]; }); }
inline I pick(M m, I a, I b) { return each<I>([&](int i) { return m.v[i] ? a.v[i] : b.v[i]; }); }
inline M between(int low, int high) { return each<M>([&](int i) { return i >= low && i < high; }); }
inline bool any(M m) {
  bool r = false;
  for (int i = 0; i < 16; i++) r |= m.v[i];
  return r;
}
inline F to_float(I a) { return each<F>([&](int i) { return static_cast<float>(a.v[i]); }); }
// Nearest, ties to even, by the magic constant; saturates outside +-2^22, NaN becomes 0.
inline I to_int(F a) {
  return each<I>([&](int i) {
    float x = a.v[i];
    x = x > 4194303.0f ? 4194303.0f : x < -4194303.0f ? -4194303.0f : x;
    const float magic = 12582912.0f;
    const float shifted = x + magic;
    const float y = shifted - magic;
    return y == y ? static_cast<int32_t>(y) : 0;
  });
}
inline I add(I a, I b) {
  return each<I>([&](int i) {
    return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) + static_cast<uint32_t>(b.v[i]));
  });
}
inline I sub(I a, I b) {
  return each<I>([&](int i) {
    return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) - static_cast<uint32_t>(b.v[i]));
  });
}
inline I bit_xor(I a, I b) { return each<I>([&](int i) { return a.v[i] ^ b.v[i]; }); }
inline I load_int(const int32_t* p) { return each<I>([&](int i) { return p[i]; }); }
inline void store_int(int32_t* p, I a) { memcpy(p, a.v, sizeof a.v); }
inline I shift_left8(I a) {
  return each<I>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << 8); });
}
// Unsigned.
inline I shift_right9(I a) {
  return each<I>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> 9); });
}
inline I shift_right7(I a) { return each<I>([&](int i) { return a.v[i] >> 7; }); }
inline I shift_left7(I a) {
  return each<I>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << 7); });
}
inline I bits(F a) { I r; memcpy(r.v, a.v, sizeof r.v); return r; }
inline F floats(I a) { F r; memcpy(r.v, a.v, sizeof r.v); return r; }
inline I clear_sign(I a) { return each<I>([&](int i) { return a.v[i] & 0x7fffffff; }); }
inline I larger(I a, I b) { return each<I>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; }); }
inline I lanes() { return each<I>([](int i) { return i; }); }
inline F power2(I n) {
  return floats(each<I>([&](int i) {
    return static_cast<int32_t>((static_cast<uint32_t>(n.v[i]) + 127u) << 23);
  }));
}
// a * 2^n in two steps, so that 2^n itself need not be representable.
inline F scale2(F a, I n) {
  const I half = each<I>([&](int i) { return n.v[i] >> 1; });
  return mul(mul(a, power2(half)), power2(sub(n, half)));
}
inline float sum_lanes(F a) {
  float t[16];
  memcpy(t, a.v, sizeof t);
  for (int step = 8; step; step /= 2)
    for (int i = 0; i < step; i++) t[i] += t[i + step];
  return t[0];
}
inline float max_lanes(F a) {
  float r = a.v[0];
  for (int i = 1; i < 16; i++) r = a.v[i] > r ? a.v[i] : r;
  return r;
}
inline int32_t max_lanes(I a) {
  int32_t r = a.v[0];
  for (int i = 1; i < 16; i++) r = a.v[i] > r ? a.v[i] : r;
  return r;
}
inline int32_t sum_lanes(I a) {
  uint32_t r = 0;
  for (int i = 0; i < 16; i++) r += static_cast<uint32_t>(a.v[i]);
  return static_cast<int32_t>(r);
}
inline float half_bits(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t rest = h & 0x7fff;
  uint32_t u;
  float f;
  if (rest >= 0x7c00) {
    u = sign | 0x7f800000 | (rest & 0x3ff) << 13;
    memcpy(&f, &u, 4);
    return f;
  }
  // The exponent of a half, scaled by 2^112, is that of the float; subnormals come out right.
  u = rest << 13;
  memcpy(&f, &u, 4);
  f *= 5.192296858534828e33f;
  memcpy(&u, &f, 4);
  u |= sign;
  memcpy(&f, &u, 4);
  return f;
}
inline F from_half(const uint16_t* p) { return each<F>([&](int i) { return half_bits(p[i]); }); }
inline void to_int8(int8_t* p, I a) {
  for (int i = 0; i < 16; i++) {
    const int32_t x = a.v[i];
    p[i] = static_cast<int8_t>(x > 127 ? 127 : x < -128 ? -128 : x);
  }
}
// 16-bit integers as high and low bytes.
inline void split_bytes(I a, uint8_t* high, uint8_t* low) {
  for (int i = 0; i < 16; i++) {
    low[i] = static_cast<uint8_t>(a.v[i]);
    high[i] = static_cast<uint8_t>(static_cast<uint32_t>(a.v[i]) >> 8);
  }
}
inline F even_bf16(const uint16_t* p) {
  return floats(each<I>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(p[2 * i]) << 16); }));
}
inline F odd_bf16(const uint16_t* p) {
  return floats(each<I>([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(p[2 * i + 1]) << 16); }));
}
inline W load_bytes(const uint8_t* p) { W r; memcpy(r.v, p, 64); return r; }
inline W low_half(W a) {
  W r;
  for (int i = 0; i < 64; i++) r.v[i] = a.v[i] & 15;
  return r;
}
inline W high_half(W a) {
  W r;
  for (int i = 0; i < 64; i++) r.v[i] = a.v[i] >> 4;
  return r;
}
inline I dot4(I acc, W w, int32_t x) {
  int8_t b[4];
  memcpy(b, &x, 4);
  for (int j = 0; j < 16; j++)
    for (int i = 0; i < 4; i++) acc.v[j] += w.v[4 * j + i] * b[i];
  return acc;
}
inline I dot8(I acc, W w, int32_t x) {
  int8_t b[4];
  memcpy(b, &x, 4);
  for (int j = 0; j < 16; j++)
    for (int i = 0; i < 4; i++) acc.v[j] += (w.v[4 * j + i] - 128) * b[i];
  return acc;
}
inline I dot8(I acc, W w, I x) { return dot8(acc, w, x.v[0]); }
// acc[j] += sum_i x[i] * w[j][i], x unsigned and w signed.
inline I dot_signed(I acc, I x, W w) {
  uint8_t b[4];
  memcpy(b, &x.v[0], 4);
  for (int j = 0; j < 16; j++)
    for (int i = 0; i < 4; i++) acc.v[j] += b[i] * static_cast<int8_t>(w.v[4 * j + i]);
  return acc;
}
inline void multiply(I a, uint32_t m, I& low, I& high) {
  for (int i = 0; i < 16; i++) {
    const uint64_t p = static_cast<uint64_t>(static_cast<uint32_t>(a.v[i])) * m;
    low.v[i] = static_cast<int32_t>(static_cast<uint32_t>(p));
    high.v[i] = static_cast<int32_t>(static_cast<uint32_t>(p >> 32));
  }
}

}  // namespace
}  // namespace outrider
