// Attention over spans of cached keys in 8 bits.
//
// A span is computed by itself: its peak, its total weight and its weighted values. Scores are exact
// dots of 16-bit queries and 8-bit keys; weights become 16-bit integers relative to the row's largest
// in the span, so weighted values are exact dots too. A row sees the other rows of its tile, whose
// keys are visited with it, only as weights of exactly 0.
#pragma once

constexpr int STRIP_QUERIES = 6;  // queries that share a load of keys or values

void write(const HeadLayout& h, uint8_t* head, int slot, const float* k, const float* v) {
  const int d = h.head_dim;
  I key_peak = splat(0), value_peak = splat(0);
  for (int c = 0; c < d; c += 16) {
    key_peak = larger(key_peak, magnitude(load_part(k + c, d - c)));
    value_peak = larger(value_peak, magnitude(load_part(v + c, d - c)));
  }
  const Scale ks = scale_for(max_lanes(key_peak), 127.0f), vs = scale_for(max_lanes(value_peak), 127.0f);
  uint8_t* keys = head + (slot / 16) * h.quads * 64 + slot % 16 * 4;
  int8_t* values = reinterpret_cast<int8_t*>(head + h.values + slot / 4 * h.width * 4 + slot % 4);
  for (int c = 0; c < d; c += 16) {
    alignas(16) int8_t q[16];
    to_int8(q, to_int(mul(load_part(k + c, d - c), splat(ks.inverse))));
    for (int i = 0; i < 4 && c / 4 + i < h.quads; i++) {
      uint32_t four;
      __builtin_memcpy(&four, q + 4 * i, 4);
      four ^= 0x80808080u;
      __builtin_memcpy(keys + (c / 4 + i) * 64, &four, 4);
    }
    to_int8(q, to_int(mul(load_part(v + c, d - c), splat(vs.inverse))));
    for (int i = 0; i < 16; i++) values[(c + i) * 4] = q[i];
  }
  reinterpret_cast<float*>(head + h.key_scales)[slot] = ks.d;
  reinterpret_cast<float*>(head + h.value_scales)[slot] = vs.d;
}

// Queries in 16 bits: q16 = 128 high + low, |high| <= 127, -64 <= low < 64.
void load_queries(const HeadLayout& h, const float* const* q, int count, Queries& out) {
  const int d = h.head_dim;
  const float norm = 1.0f / __builtin_sqrtf(static_cast<float>(d));
  out.count = count;
  for (int i = 0; i < count; i++) {
    I peak = splat(0);
    for (int c = 0; c < d; c += 16) peak = larger(peak, magnitude(load_part(q[i] + c, d - c)));
    const Scale s = scale_for(max_lanes(peak), 16256.0f);
    I total = splat(0);
    for (int c = 0; c < d; c += 16) {
      const I whole = to_int(mul(load_part(q[i] + c, d - c), splat(s.inverse)));
      const I top = shift_right7(add(whole, splat(64)));
      alignas(16) int8_t high[16], low[16];
      to_int8(high, top);
      to_int8(low, sub(whole, shift_left7(top)));
      total = add(total, whole);
      const int bytes = 4 * h.quads - c < 16 ? 4 * h.quads - c : 16;
      __builtin_memcpy(out.high + i * 4 * h.quads + c, high, bytes);
      __builtin_memcpy(out.low + i * 4 * h.quads + c, low, bytes);
    }
    const uint32_t sum = static_cast<uint32_t>(sum_lanes(total));
    out.scale[i] = s.d * norm;
    out.sum[i] = static_cast<int32_t>(0u - 128u * sum);
  }
}

struct alignas(64) SpanScratch {
  float scores[MAX_QUERIES][SPAN];
  // Weights in 16 bits, 256 high + low: high bytes of query i in line i, low ones in line count + i.
  uint8_t bytes[2 * MAX_QUERIES][SPAN];
  float scale[MAX_QUERIES];  // of the 16-bit weights
};

// Exact dots of 16 keys with a query, scaled.
inline void put_scores(I high, I low, F key_scales, const Queries& q, int i, float* scores) {
  const F dot = to_float(add(shift_left7(high), low));
  store(scores, mul(mul(dot, key_scales), splat(q.scale[i])));
}

// Loops over queries and chunks must be unrolled: running sums that a loop indexes live in memory.
template <int Q>
void score_tile(const HeadLayout& h, const Queries& q, int from, const uint8_t* keys,
                const float* key_scales, SpanScratch& s, int at) {
  I high[Q], low[Q];
#pragma GCC unroll 6
  for (int i = 0; i < Q; i++) {
    high[i] = splat(0);
    low[i] = splat(BIASED ? q.sum[from + i] : 0);
  }
  const int32_t* a = reinterpret_cast<const int32_t*>(q.high) + from * h.quads;
  const int32_t* b = reinterpret_cast<const int32_t*>(q.low) + from * h.quads;
  int c = 0;
  do {
    const W k = load_bytes(keys + 64 * c);
#pragma GCC unroll 6
    for (int i = 0; i < Q; i++) {
      high[i] = dot8(high[i], k, a[i * h.quads + c]);
      low[i] = dot8(low[i], k, b[i * h.quads + c]);
    }
  } while (++c < h.quads);
#pragma GCC unroll 6
  for (int i = 0; i < Q; i++) put_scores(high[i], low[i], load(key_scales), q, from + i, s.scores[from + i] + at);
}

// Turn the scores of one query over tiles [t0, t1) into 16-bit weights; keys outside
// low .. high - 1 get weight 0.
inline Partial weigh(SpanScratch& scratch, int i, int count, int t0, int t1, int low, int high,
                     const SpanKeys& keys, size_t value_scales) {
  float* s = scratch.scores[i];
  const F hidden = splat(-__builtin_inff()), none = splat(0.0f);
  F top = hidden;
  for (int t = t0; t < t1; t++)
    top = larger(pick(between(low - 16 * t, high - 16 * t), load(s + 16 * t), hidden), top);
  const float peak = max_lanes(top);
  F total = none;
  I most = splat(0);
  for (int t = t0; t < t1; t++) {
    const M seen = between(low - 16 * t, high - 16 * t);
    const F w = pick(seen, exp16(sub(load(s + 16 * t), splat(peak))), none);
    total = add(total, w);
    const uint8_t* page = keys.pages[t / 2] + value_scales;
    const F scaled = mul(w, load(reinterpret_cast<const float*>(page) + t % 2 * 16));
    const F kept = pick(seen, scaled, none);
    most = larger(most, bits(kept));  // none is negative, so integer order is float order
    store(s + 16 * t, kept);
  }
  const Scale scale = scale_for(max_lanes(most), 65535.0f);
  for (int t = t0; t < t1; t++) {
    const I w = to_int(mul(load(s + 16 * t), splat(scale.inverse)));
    split_bytes(w, scratch.bytes[i] + 16 * t, scratch.bytes[count + i] + 16 * t);
  }
  scratch.scale[i] = scale.d;
  return {peak, sum_lanes(total)};
}

inline void put_mixed(I high, I low, const SpanScratch& s, int i, float* mixed) {
  store(mixed, mul(to_float(add(shift_left8(high), low)), splat(s.scale[i])));
}

// Weighted values of Q queries in C chunks of 16 dimensions, over tiles [t0, t1) of 16 keys.
//
// A tile's sums live in registers and are then added to those in memory: sums that a loop carries are
// copied at every turn by some compilers.
template <int Q, int C>
inline void mix(const HeadLayout& h, const SpanKeys& keys, const SpanScratch& s, int from, int total,
                int t0, int t1, int dim, float* mixed) {
  alignas(64) int32_t sums[2][Q][C][TILE];
  memset(sums, 0, sizeof(sums));
  for (int t = t0; t < t1; t++) {
    const uint8_t* v = keys.pages[t / 2] + h.values + (t % 2 * 4 * h.width + dim) * 4;
    I high[Q][C], low[Q][C];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
      W value[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) value[c] = load_bytes(v + k * h.width * 4 + 64 * c);
#pragma GCC unroll 6
      for (int i = 0; i < Q; i++) {
        int32_t a, b;
        __builtin_memcpy(&a, s.bytes[from + i] + 16 * t + 4 * k, 4);
        __builtin_memcpy(&b, s.bytes[total + from + i] + 16 * t + 4 * k, 4);
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
          high[i][c] = dot_signed(k ? high[i][c] : splat(0), a, value[c]);
          low[i][c] = dot_signed(k ? low[i][c] : splat(0), b, value[c]);
        }
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < Q; i++) {
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) {
        store_int(sums[0][i][c], add(load_int(sums[0][i][c]), high[i][c]));
        store_int(sums[1][i][c], add(load_int(sums[1][i][c]), low[i][c]));
      }
    }
  }
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < C; c++)
      put_mixed(load_int(sums[0][i][c]), load_int(sums[1][i][c]), s, from + i,
                mixed + (from + i) * h.width + dim + 16 * c);
}

template <int Q>
void mix_rows(const HeadLayout& h, const SpanKeys& keys, const SpanScratch& s, int from, int total,
              int t0, int t1, float* mixed) {
  constexpr int C = Q <= 3 ? 4 : 2;
  int dim = 0;
  for (; dim + 16 * C <= h.width; dim += 16 * C) mix<Q, C>(h, keys, s, from, total, t0, t1, dim, mixed);
  for (; dim < h.width; dim += 16) mix<Q, 1>(h, keys, s, from, total, t0, t1, dim, mixed);
}

using ScoreFn = void (*)(const HeadLayout&, const Queries&, int, const uint8_t*, const float*,
                         SpanScratch&, int);
using MixFn = void (*)(const HeadLayout&, const SpanKeys&, const SpanScratch&, int, int, int, int, float*);
constexpr ScoreFn SCORES[STRIP_QUERIES] = {score_tile<1>, score_tile<2>, score_tile<3>,
                                           score_tile<4>, score_tile<5>, score_tile<6>};
constexpr MixFn MIXES[STRIP_QUERIES] = {mix_rows<1>, mix_rows<2>, mix_rows<3>,
                                        mix_rows<4>, mix_rows<5>, mix_rows<6>};

// Ask for half a page of the next span: called once for every tile of 16 keys.
inline void prefetch_tile(const HeadLayout& h, const SpanKeys& keys, int t) {
  const uint8_t* page = keys.next[t / 2];
  if (!page) return;
  const int half = static_cast<int>(h.bytes / 2 + 63) / 64 * 64;
  for (int i = 0; i < half; i += 64) __builtin_prefetch(page + t % 2 * half + i, 0, 2);
}

inline void score_span(const HeadLayout& h, const Queries& q, const SpanKeys& keys, int t0, int t1,
                       SpanScratch& s) {
  for (int t = t0; t < t1; t++) {
    const uint8_t* page = keys.pages[t / 2];
    const float* scales = reinterpret_cast<const float*>(page + h.key_scales) + t % 2 * 16;
    prefetch_tile(h, keys, t);
    for (int i = 0; i < q.count; i += STRIP_QUERIES) {
      const int count = q.count - i < STRIP_QUERIES ? q.count - i : STRIP_QUERIES;
      SCORES[count - 1](h, q, i, page + t % 2 * h.quads * 64, scales, s, 16 * t);
    }
  }
}

inline void mix_span(const HeadLayout& h, const Queries& q, const SpanKeys& keys, int t0, int t1,
                     const SpanScratch& s, float* mixed) {
  for (int i = 0; i < q.count; i += STRIP_QUERIES) {
    const int count = q.count - i < STRIP_QUERIES ? q.count - i : STRIP_QUERIES;
    MIXES[count - 1](h, keys, s, i, q.count, t0, t1, mixed);
  }
}

#ifdef OUTRIDER_WIDE_ROWS
#include "wide_attention.h"
#endif

// Query i sees keys low[i] .. high[i] - 1 of the span.
void attend(const HeadLayout& h, const Queries& q, const SpanKeys& keys, const int* low,
            const int* high, Partial* part, float* mixed) {
  SpanScratch scratch;
  int from = keys.count, upto = 0;
  for (int i = 0; i < q.count; i++) {
    if (low[i] >= high[i]) continue;
    from = low[i] < from ? low[i] : from;
    upto = high[i] > upto ? high[i] : upto;
  }
  if (from >= upto) from = upto = 0;
  int t0 = from / 16, t1 = (upto + 15) / 16;
#ifdef OUTRIDER_WIDE_ROWS
  const bool wide = wide_ready();
  if (wide) {
    t0 = t0 / 2 * 2;  // whole pages: 32 keys fill a tile of weights
    t1 = (t1 + 1) / 2 * 2;
    wide_score_span(h, q, keys, t0, t1, scratch);
  }
#else
  constexpr bool wide = false;
#endif
  if (!wide) score_span(h, q, keys, t0, t1, scratch);
  for (int i = 0; i < q.count; i++)
    part[i] = weigh(scratch, i, q.count, t0, t1, low[i], high[i], keys, h.value_scales);
#ifdef OUTRIDER_WIDE_ROWS
  if (wide) return wide_mix_span(h, q, keys, t0, t1, scratch, mixed);
#endif
  mix_span(h, q, keys, t0, t1, scratch, mixed);
}

void merge(const HeadLayout& h, Partial& into, float* mixed, const Partial& part, const float* values) {
  if (part.peak == -__builtin_inff() && part.total == 0.0f) return;  // the row sees nothing here
  const float peak = part.peak > into.peak ? part.peak : into.peak;
  const float keep = lane(exp16(splat(into.peak - peak)), 0);
  const float gain = lane(exp16(splat(part.peak - peak)), 0);
  into.peak = peak;
  into.total = into.total * keep + part.total * gain;
  for (int c = 0; c < h.width; c += 16) {
    const F old = mul(load(mixed + c), splat(keep));
    store(mixed + c, fma(load(values + c), splat(gain), old));
  }
}

void finish(const HeadLayout& h, const Partial& part, const float* mixed, float* out) {
  const F total = splat(part.total);
  for (int c = 0; c < h.head_dim; c += 16)
    store_part(out + c, div(load(mixed + c), total), h.head_dim - c);
}
