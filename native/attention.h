// Attention over spans of cached keys in 8 bits.
//
// A span is computed by itself: its peak, its total weight and its weighted values. Keys that a row
// does not see weigh exactly 0, and adding 0 times an integer leaves an accumulator's bits alone
// (it can never be -0, because a nonzero weight times a nonzero integer does not underflow), so the
// other rows of a tile, whose keys are visited too, cannot be noticed.
#pragma once

constexpr int KEY_TILES = SPAN / 16;
constexpr int SCORE_ROWS = 6;

void write(const HeadLayout& h, uint8_t* head, int slot, const float* k, const float* v) {
  const int d = h.head_dim;
  I key_peak = splat(0), value_peak = splat(0);
  for (int c = 0; c < d; c += 16) {
    key_peak = larger(key_peak, magnitude(load_part(k + c, d - c)));
    value_peak = larger(value_peak, magnitude(load_part(v + c, d - c)));
  }
  const Scale ks = scale_for(max_lanes(key_peak), 127.0f), vs = scale_for(max_lanes(value_peak), 127.0f);
  uint8_t* keys = head + (slot / 16) * h.quads * 64 + slot % 16 * 4;
  int8_t* values = reinterpret_cast<int8_t*>(head + h.values + slot * h.width);
  for (int c = 0; c < d; c += 16) {
    alignas(16) int8_t q[16];
    to_int8(q, to_int(mul(load_part(k + c, d - c), splat(ks.inverse))));
    for (int i = 0; i < 4 && c / 4 + i < h.quads; i++) {
      uint32_t four;
      __builtin_memcpy(&four, q + 4 * i, 4);
      four ^= 0x80808080u;
      __builtin_memcpy(keys + (c / 4 + i) * 64, &four, 4);
    }
    to_int8(values + c, to_int(mul(load_part(v + c, d - c), splat(vs.inverse))));
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
      for (int j = 0; j < 4 && c / 4 + j < h.quads; j++) {
        __builtin_memcpy(out.high + (c / 4 + j) * MAX_QUERIES + i, high + 4 * j, 4);
        __builtin_memcpy(out.low + (c / 4 + j) * MAX_QUERIES + i, low + 4 * j, 4);
      }
    }
    const uint32_t sum = static_cast<uint32_t>(sum_lanes(total));
    out.scale[i] = s.d * norm;
    out.sum[i] = static_cast<int32_t>(0u - 128u * sum);
  }
}

using Scores = float[MAX_QUERIES][SPAN];

// Scores of Q queries from `from` on against 16 keys.
template <int Q>
inline void score_tile(const HeadLayout& h, const Queries& q, int from, const uint8_t* keys,
                       const float* key_scales, Scores scores, int at) {
  I high[Q], low[Q];
  for (int i = 0; i < Q; i++) {
    high[i] = splat(0);
    low[i] = splat(BIASED ? q.sum[from + i] : 0);
  }
  const int32_t* a = q.high + from;
  const int32_t* b = q.low + from;
  for (int c = 0; c < h.quads; c++, a += MAX_QUERIES, b += MAX_QUERIES) {
    const W k = load_bytes(keys + 64 * c);
    for (int i = 0; i < Q; i++) {
      high[i] = dot8(high[i], k, a[i]);
      low[i] = dot8(low[i], k, b[i]);
    }
  }
  const F scale = load(key_scales);
  for (int i = 0; i < Q; i++) {
    const F dot = to_float(add(shift_left7(high[i]), low[i]));
    store(scores[from + i] + at, mul(mul(dot, scale), splat(q.scale[from + i])));
  }
}

inline void score_rows(const HeadLayout& h, const Queries& q, int from, int count, const uint8_t* keys,
                       const float* scales, Scores s, int at) {
  switch (count) {
    case 1: return score_tile<1>(h, q, from, keys, scales, s, at);
    case 2: return score_tile<2>(h, q, from, keys, scales, s, at);
    case 3: return score_tile<3>(h, q, from, keys, scales, s, at);
    case 4: return score_tile<4>(h, q, from, keys, scales, s, at);
    case 5: return score_tile<5>(h, q, from, keys, scales, s, at);
    default: return score_tile<6>(h, q, from, keys, scales, s, at);
  }
}

// Turn the scores of one query into weights times value scales over tiles [t0, t1); keys outside
// low .. high - 1 get weight 0.
inline Partial weigh(float* s, int t0, int t1, int low, int high, const SpanKeys& keys,
                     size_t value_scales) {
  const F hidden = splat(-__builtin_inff());
  F top = hidden;
  for (int t = t0; t < t1; t++)
    top = larger(pick(between(low - 16 * t, high - 16 * t), load(s + 16 * t), hidden), top);
  const float peak = max_lanes(top);
  F total = splat(0.0f);
  for (int t = t0; t < t1; t++) {
    const M seen = between(low - 16 * t, high - 16 * t);
    const F w = pick(seen, exp16(sub(load(s + 16 * t), splat(peak))), splat(0.0f));
    total = add(total, w);
    const uint8_t* page = keys.pages[t / 2] + value_scales;
    const F scale = load(reinterpret_cast<const float*>(page) + t % 2 * 16);
    store(s + 16 * t, pick(seen, mul(w, scale), splat(0.0f)));
  }
  return {peak, sum_lanes(total)};
}

// Weighted values of Q queries in C chunks of 16 dimensions, keys in order.
template <int Q, int C>
inline void mix(const HeadLayout& h, const SpanKeys& keys, const Scores w, int from, int low, int high,
                int dim, float* mixed) {
  F acc[Q][C];
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < C; c++) acc[i][c] = splat(0.0f);
  for (int key = low; key < high;) {
    const int end = high < (key / PAGE_TOKENS + 1) * PAGE_TOKENS ? high : (key / PAGE_TOKENS + 1) * PAGE_TOKENS;
    const uint8_t* page = keys.pages[key / PAGE_TOKENS] + h.values + dim;
    for (; key < end; key++) {
      const int8_t* v = reinterpret_cast<const int8_t*>(page + key % PAGE_TOKENS * h.width);
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) {
        const F value = from_int8(v + 16 * c);
#pragma GCC unroll 6
        for (int i = 0; i < Q; i++) acc[i][c] = fma(value, splat(w[from + i][key]), acc[i][c]);
      }
    }
  }
  for (int i = 0; i < Q; i++)
    for (int c = 0; c < C; c++) store(mixed + (from + i) * h.width + dim + 16 * c, acc[i][c]);
}

template <int Q>
inline void mix_rows(const HeadLayout& h, const SpanKeys& keys, const Scores w, int from, int low,
                     int high, float* mixed) {
  constexpr int C = Q <= 3 ? 4 : 2;
  int dim = 0;
  for (; dim + 16 * C <= h.width; dim += 16 * C) mix<Q, C>(h, keys, w, from, low, high, dim, mixed);
  for (; dim < h.width; dim += 16) mix<Q, 1>(h, keys, w, from, low, high, dim, mixed);
}

inline void mix_some(const HeadLayout& h, const SpanKeys& keys, const Scores w, int from, int count,
                     int low, int high, float* mixed) {
  switch (count) {
    case 1: return mix_rows<1>(h, keys, w, from, low, high, mixed);
    case 2: return mix_rows<2>(h, keys, w, from, low, high, mixed);
    case 3: return mix_rows<3>(h, keys, w, from, low, high, mixed);
    case 4: return mix_rows<4>(h, keys, w, from, low, high, mixed);
    case 5: return mix_rows<5>(h, keys, w, from, low, high, mixed);
    default: return mix_rows<6>(h, keys, w, from, low, high, mixed);
  }
}

// Query i sees keys low[i] .. high[i] - 1 of the span.
void attend(const HeadLayout& h, const Queries& q, const SpanKeys& keys, const int* low,
            const int* high, Partial* part, float* mixed) {
  alignas(64) Scores scores;
  int from = keys.count, upto = 0;
  for (int i = 0; i < q.count; i++) {
    if (low[i] >= high[i]) continue;
    from = low[i] < from ? low[i] : from;
    upto = high[i] > upto ? high[i] : upto;
  }
  if (from > upto) from = upto;
  for (int t = from / 16; t < (upto + 15) / 16; t++) {
    const uint8_t* page = keys.pages[t / 2];
    const float* scales = reinterpret_cast<const float*>(page + h.key_scales) + t % 2 * 16;
    for (int i = 0; i < q.count; i += SCORE_ROWS) {
      const int count = q.count - i < SCORE_ROWS ? q.count - i : SCORE_ROWS;
      score_rows(h, q, i, count, page + t % 2 * h.quads * 64, scales, scores, 16 * t);
    }
  }
  for (int i = 0; i < q.count; i++)
    part[i] = weigh(scores[i], from / 16, (upto + 15) / 16, low[i], high[i], keys, h.value_scales);
  for (int i = 0; i < q.count; i += SCORE_ROWS) {
    const int count = q.count - i < SCORE_ROWS ? q.count - i : SCORE_ROWS;
    mix_some(h, keys, scores, i, count, from, upto, mixed);
  }
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
