// Formats of cached keys and values: how a row is rounded, and how lines of 64 bytes are multiplied.
//
// A line is 16 words of PER elements: of 16 tokens for keys, of 16 dimensions for values. Attention
// is one program over these types; see attention.h. SKIPS says that a token which a query does not
// see must be left out: its weight is 0, but its values may be NaN, and 0 times NaN is NaN.
#pragma once
#include "cache/pages.h"
#include "paths/path.h"
#include "paths/pointwise.h"
#include "paths/simd.h"

namespace outrider {
namespace {

struct alignas(64) SpanScratch {
  float scores[MAX_QUERIES][SPAN];  // later, of float formats, the weights
  // Weights in 16 bits, 256 high + low: high bytes of query i in line i, low ones in line count + i.
  uint8_t bytes[2 * MAX_QUERIES][SPAN];
  float scale[MAX_QUERIES];  // of the 16-bit weights
};

// 8 bits, one scale per token and head. Scores are exact dots of 16-bit queries and 8-bit keys;
// weights become 16-bit integers relative to the row's largest in the span, so weighted values are
// exact dots too. Integers cannot be NaN: a row spoils a result through its scale alone, and lanes
// that a query does not see are dropped after scaling. A row that is not finite has a NaN scale.
struct Int8Keys {
  static constexpr int PER = 4;
  static constexpr bool SKIPS = false;
  static constexpr uint32_t KEY_BIAS = 0x80808080u;
  using Element = int8_t;
  using Rounding = Scale;
  using Line = W;
  struct Pair {
    I high, low;
  };
  using Query = Pair;
  using Dots = Pair;
  using Weights = Pair;
  using Sums = Pair;

  static Rounding rounding(const float* x, int d) {
    I peak = splat(0);
    for (int c = 0; c < d; c += 16) peak = larger(peak, magnitude(load_part(x + c, d - c)));
    return scale_for(max_lanes(peak), 127.0f);
  }
  static void round(F x, const Rounding& s, Element* out) { to_int8(out, to_int(mul(x, splat(s.inverse)))); }
  static void put_scales(const HeadLayout& h, uint8_t* head, int slot, const Rounding& k, const Rounding& v) {
    reinterpret_cast<float*>(head + h.key_scales)[slot] = k.d;
    reinterpret_cast<float*>(head + h.value_scales)[slot] = v.d;
  }
  static Line line(const uint8_t* p) { return load_bytes(p); }

  // 16 bits: q16 = 128 high + low, |high| <= 127, -64 <= low < 64. Lines [count][4 * lines] of high
  // parts, then as many of low ones.
  static void load_query(const HeadLayout& h, const float* q, float norm, int i, Queries& out) {
    const int d = h.head_dim;
    I peak = splat(0);
    for (int c = 0; c < d; c += 16) peak = larger(peak, magnitude(load_part(q + c, d - c)));
    const Scale s = scale_for(max_lanes(peak), 16256.0f);
    uint8_t* to = out.data + i * 4 * h.lines;
    I total = splat(0);
    for (int c = 0; c < d; c += 16) {
      const I whole = to_int(mul(load_part(q + c, d - c), splat(s.inverse)));
      const I top = shift_right7(add(whole, splat(64)));
      alignas(16) int8_t high[16], low[16];
      to_int8(high, top);
      to_int8(low, sub(whole, shift_left7(top)));
      total = add(total, whole);
      const int bytes = 4 * h.lines - c < 16 ? 4 * h.lines - c : 16;
      __builtin_memcpy(to + c, high, bytes);
      __builtin_memcpy(to + out.count * 4 * h.lines + c, low, bytes);
    }
    const uint32_t sum = static_cast<uint32_t>(sum_lanes(total));
    out.scale[i] = s.d * norm;
    out.sum[i] = static_cast<int32_t>(0u - 128u * sum);
  }
  static Query query(const HeadLayout& h, const Queries& q, int i, int c) {
    const int32_t* words = reinterpret_cast<const int32_t*>(q.data) + i * h.lines + c;
    return {splat(words[0]), splat(words[q.count * h.lines])};
  }

  static Dots start(const Queries& q, int i) { return {splat(0), splat(BIASED ? q.sum[i] : 0)}; }
  static void dot(Dots& sum, const Line& k, const Query& x) {
    sum.high = dot8(sum.high, k, x.high);
    sum.low = dot8(sum.low, k, x.low);
  }
  // Exact dots of 16 keys with a query, scaled.
  static F score(const Dots& sum, const HeadLayout& h, const uint8_t* page, int t, const Queries& q, int i) {
    const F dot = to_float(add(shift_left7(sum.high), sum.low));
    return mul(mul(dot, load(reinterpret_cast<const float*>(page + h.key_scales) + 16 * t)), splat(q.scale[i]));
  }

  static F weight(F w, const HeadLayout& h, const uint8_t* page, int t) {
    return mul(w, load(reinterpret_cast<const float*>(page + h.value_scales) + 16 * t));
  }
  template <int T>
  static void put_weights(const F (&w)[T], SpanScratch& s, int i, int count, int first) {
    I most = splat(0);
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) most = larger(most, bits(w[t]));  // none is negative: float order
    const Scale scale = scale_for(max_lanes(most), 65535.0f);
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) {
      const int at = first + 16 * t;
      split_bytes(to_int(mul(w[t], splat(scale.inverse))), s.bytes[i] + at, s.bytes[count + i] + at);
    }
    s.scale[i] = scale.d;
  }
  static Weights weights(const SpanScratch& s, int i, int count, int line) {
    int32_t a, b;
    __builtin_memcpy(&a, s.bytes[i] + 4 * line, 4);
    __builtin_memcpy(&b, s.bytes[count + i] + 4 * line, 4);
    return {splat(a), splat(b)};
  }
  static Sums none() { return {splat(0), splat(0)}; }
  static void mix(Sums& sum, const Line& v, const Weights& w) {
    sum.high = dot_signed(sum.high, w.high, v);
    sum.low = dot_signed(sum.low, w.low, v);
  }
  static F mixed(const Sums& sum, const SpanScratch& s, int i) {
    return mul(to_float(add(shift_left8(sum.high), sum.low)), splat(s.scale[i]));
  }
};

// Nearest, ties to even; NaN stays NaN.
inline uint16_t bf16_of(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, 4);
  const uint32_t nearest = (u + 0x7fff + (u >> 16 & 1)) >> 16, quiet = u >> 16 | 0x40;
  return static_cast<uint16_t>((u & 0x7fffffff) > 0x7f800000 ? quiet : nearest);
}

struct Bf16Line {
  static constexpr int PER = 2;
  using Element = uint16_t;
  F part[2];

  static Bf16Line at(const uint8_t* p) {
    const uint16_t* pairs = reinterpret_cast<const uint16_t*>(p);
    return {{even_bf16(pairs), odd_bf16(pairs)}};
  }
  static void round(F x, Element* out) {
    alignas(64) float t[16];
    store(t, x);
    for (int i = 0; i < 16; i++) out[i] = bf16_of(t[i]);
  }
};

struct F32Line {
  static constexpr int PER = 1;
  using Element = float;
  F part[1];

  static F32Line at(const uint8_t* p) { return {{load(reinterpret_cast<const float*>(p))}}; }
  static void round(F x, Element* out) { store(out, x); }
};

// Floats as they are, no scales. Queries are float32, times d^-0.5; a score sums its products by
// place in the line, each in order, and weighted values are added token by token.
template <class L>
struct FloatKeys {
  static constexpr int PER = L::PER;
  static constexpr bool SKIPS = true;
  static constexpr uint32_t KEY_BIAS = 0;
  using Element = typename L::Element;
  using Line = L;
  struct Rounding {};
  struct Query {
    F part[PER];
  };
  using Dots = Query;
  using Weights = const float*;
  struct Sums {
    F sum;
  };

  static Rounding rounding(const float*, int) { return {}; }
  static void round(F x, const Rounding&, Element* out) { L::round(x, out); }
  static void put_scales(const HeadLayout&, uint8_t*, int, const Rounding&, const Rounding&) {}
  static Line line(const uint8_t* p) { return L::at(p); }

  static void load_query(const HeadLayout& h, const float* q, float norm, int i, Queries& out) {
    const int size = h.lines * PER;
    float* to = reinterpret_cast<float*>(out.data) + i * size;
    for (int c = 0; c < size; c += 16)
      store_part(to + c, mul(load_part(q + c, h.head_dim - c), splat(norm)), size - c);
  }
  static Query query(const HeadLayout& h, const Queries& q, int i, int c) {
    const float* x = reinterpret_cast<const float*>(q.data) + (i * h.lines + c) * PER;
    Query r;
#pragma GCC unroll 2
    for (int p = 0; p < PER; p++) r.part[p] = splat(x[p]);
    return r;
  }

  static Dots start(const Queries&, int) {
    Dots r;
#pragma GCC unroll 2
    for (int p = 0; p < PER; p++) r.part[p] = splat(0.0f);
    return r;
  }
  static void dot(Dots& sum, const Line& k, const Query& x) {
#pragma GCC unroll 2
    for (int p = 0; p < PER; p++) sum.part[p] = fma(k.part[p], x.part[p], sum.part[p]);
  }
  static F score(const Dots& sum, const HeadLayout&, const uint8_t*, int, const Queries&, int) {
    if constexpr (PER == 1) return sum.part[0];
    else return add(sum.part[0], sum.part[1]);
  }

  static F weight(F w, const HeadLayout&, const uint8_t*, int) { return w; }
  template <int T>
  static void put_weights(const F (&w)[T], SpanScratch& s, int i, int, int first) {
#pragma GCC unroll 8
    for (int t = 0; t < T; t++) store(s.scores[i] + first + 16 * t, w[t]);
  }
  static Weights weights(const SpanScratch& s, int i, int, int line) { return s.scores[i] + line * PER; }
  static Sums none() { return {splat(0.0f)}; }
  static void mix_one(Sums& sum, const Line& v, Weights w, int p) {
    sum.sum = fma(v.part[p], splat(w[p]), sum.sum);
  }
  static void mix(Sums& sum, const Line& v, Weights w) {
#pragma GCC unroll 2
    for (int p = 0; p < PER; p++) mix_one(sum, v, w, p);
  }
  static F mixed(const Sums& sum, const SpanScratch&, int) { return sum.sum; }
};

using Bf16Keys = FloatKeys<Bf16Line>;
using F32Keys = FloatKeys<F32Line>;

}  // namespace
}  // namespace outrider
