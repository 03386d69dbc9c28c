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

// Scores of Q queries against a page. Loops over queries and tiles must be unrolled: running sums
// that a loop indexes live in memory. The next page is asked for line by line, as this one is read:
// asked for at once, much of it would come no earlier than when it is needed.
template <int Q>
void score_page(const HeadLayout& h, const Queries& q, int from, const uint8_t* page,
                const uint8_t* next, SpanScratch& s, int at) {
  constexpr int T = PAGE_TOKENS / 16;
  const float* key_scales = reinterpret_cast<const float*>(page + h.key_scales);
  I high[T][Q], low[T][Q];
#pragma GCC unroll 2
  for (int t = 0; t < T; t++) {
#pragma GCC unroll 6
    for (int i = 0; i < Q; i++) {
      high[t][i] = splat(0);
      low[t][i] = splat(BIASED ? q.sum[from + i] : 0);
    }
  }
  const int32_t* a = reinterpret_cast<const int32_t*>(q.high) + from * h.quads;
  const int32_t* b = reinterpret_cast<const int32_t*>(q.low) + from * h.quads;
  int c = 0;
  do {
    W k[T];
#pragma GCC unroll 2
    for (int t = 0; t < T; t++) {
      k[t] = load_bytes(page + (t * h.quads + c) * 64);
      if (next) ask_for(next + (t * h.quads + c) * 64, 64);
    }
#pragma GCC unroll 6
    for (int i = 0; i < Q; i++) {
      const I top = splat(a[i * h.quads + c]), rest = splat(b[i * h.quads + c]);
#pragma GCC unroll 2
      for (int t = 0; t < T; t++) {
        high[t][i] = dot8(high[t][i], k[t], top);
        low[t][i] = dot8(low[t][i], k[t], rest);
      }
    }
  } while (++c < h.quads);
#pragma GCC unroll 2
  for (int t = 0; t < T; t++) {
#pragma GCC unroll 6
    for (int i = 0; i < Q; i++)
      put_scores(high[t][i], low[t][i], load(key_scales + 16 * t), q, from + i, s.scores[from + i] + at + 16 * t);
  }
}

// Turn the scores of one query over N pages from page p0 on into 16-bit weights; keys outside
// low .. high - 1 get weight 0. ALL: no key lies outside, which saves asking.
template <int N, bool ALL>
Partial weigh_pages(SpanScratch& scratch, int i, int count, int p0, int low, int high,
                    const SpanKeys& keys, size_t value_scales) {
  constexpr int T = N * PAGE_TOKENS / 16;
  const int first = p0 * PAGE_TOKENS;
  const float* s = scratch.scores[i] + first;
  const F hidden = splat(-__builtin_inff()), none = splat(0.0f);
  F w[T];
  F top = hidden;
#pragma GCC unroll 8
  for (int t = 0; t < T; t++) {
    const int at = first + 16 * t;
    w[t] = load(s + 16 * t);
    if constexpr (!ALL) w[t] = pick(between(low - at, high - at), w[t], hidden);
    top = larger(w[t], top);
  }
  const float peak = max_lanes(top);
  F total = none;
  I most = splat(0);
#pragma GCC unroll 8
  for (int t = 0; t < T; t++) {
    const int at = first + 16 * t;
    const float* scales = reinterpret_cast<const float*>(keys.pages[p0 + t / 2] + value_scales) + t % 2 * 16;
    w[t] = exp_negative(sub(w[t], splat(peak)));
    if constexpr (ALL) {
      total = add(total, w[t]);
      w[t] = mul(w[t], load(scales));
    } else {
      const M seen = between(low - at, high - at);
      total = add(total, pick(seen, w[t], none));
      w[t] = pick(seen, mul(w[t], load(scales)), none);
    }
    most = larger(most, bits(w[t]));  // none is negative, so integer order is float order
  }
  const Scale scale = scale_for(max_lanes(most), 65535.0f);
#pragma GCC unroll 8
  for (int t = 0; t < T; t++) {
    const int at = first + 16 * t;
    split_bytes(to_int(mul(w[t], splat(scale.inverse))), scratch.bytes[i] + at, scratch.bytes[count + i] + at);
  }
  scratch.scale[i] = scale.d;
  return {peak, sum_lanes(total)};
}

template <int N>
Partial weigh_some(SpanScratch& scratch, int i, int count, int p0, int low, int high,
                   const SpanKeys& keys, size_t value_scales) {
  if (low <= p0 * PAGE_TOKENS && high >= (p0 + N) * PAGE_TOKENS)
    return weigh_pages<N, true>(scratch, i, count, p0, low, high, keys, value_scales);
  return weigh_pages<N, false>(scratch, i, count, p0, low, high, keys, value_scales);
}

// As weigh_pages, over pages [p0, p1). The number of pages does not change bits: hidden keys add 0.
inline Partial weigh(SpanScratch& scratch, int i, int count, int p0, int p1, int low, int high,
                     const SpanKeys& keys, size_t value_scales) {
  static_assert(SPAN_PAGES == 4);
  switch (p1 - p0) {
    case 0: scratch.scale[i] = 0.0f; return {-__builtin_inff(), 0.0f};
    case 1: return weigh_some<1>(scratch, i, count, p0, low, high, keys, value_scales);
    case 2: return weigh_some<2>(scratch, i, count, p0, low, high, keys, value_scales);
    case 3: return weigh_some<3>(scratch, i, count, p0, low, high, keys, value_scales);
    default: return weigh_some<4>(scratch, i, count, p0, low, high, keys, value_scales);
  }
}

inline void put_mixed(I high, I low, const SpanScratch& s, int i, float* mixed) {
  store(mixed, mul(to_float(add(shift_left8(high), low)), splat(s.scale[i])));
}

// Weighted values of Q queries in C chunks of 16 dimensions, over whole pages [p0, p1).
template <int Q, int C>
inline void mix(const HeadLayout& h, const SpanKeys& keys, const SpanScratch& s, int from, int total,
                int p0, int p1, int dim, float* mixed) {
  const bool asks = from == 0;
  I high[Q][C], low[Q][C];
#pragma GCC unroll 6
  for (int i = 0; i < Q; i++) {
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) high[i][c] = low[i][c] = splat(0);
  }
  for (int quad = 8 * p0; quad < 8 * p1; quad++) {
    const uint8_t* v = keys.pages[quad / 8] + h.values + (quad % 8 * h.width + dim) * 4;
    W value[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) value[c] = load_bytes(v + 64 * c);
    if (asks && keys.next[quad / 8])
      ask_for(keys.next[quad / 8] + h.values + (quad % 8 * h.width + dim) * 4, 64 * C);
#pragma GCC unroll 6
    for (int i = 0; i < Q; i++) {
      int32_t a, b;
      __builtin_memcpy(&a, s.bytes[from + i] + 4 * quad, 4);
      __builtin_memcpy(&b, s.bytes[total + from + i] + 4 * quad, 4);
      const I top = splat(a), rest = splat(b);
#pragma GCC unroll 4
      for (int c = 0; c < C; c++) {
        high[i][c] = dot_signed(high[i][c], top, value[c]);
        low[i][c] = dot_signed(low[i][c], rest, value[c]);
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < Q; i++) {
#pragma GCC unroll 4
    for (int c = 0; c < C; c++)
      put_mixed(high[i][c], low[i][c], s, from + i, mixed + (from + i) * h.width + dim + 16 * c);
  }
}

template <int Q>
void mix_rows(const HeadLayout& h, const SpanKeys& keys, const SpanScratch& s, int from, int total,
              int p0, int p1, float* mixed) {
  constexpr int C = Q <= 3 ? 4 : 2;
  int dim = 0;
  for (; dim + 16 * C <= h.width; dim += 16 * C) mix<Q, C>(h, keys, s, from, total, p0, p1, dim, mixed);
  for (; dim < h.width; dim += 16) mix<Q, 1>(h, keys, s, from, total, p0, p1, dim, mixed);
}

using ScoreFn = void (*)(const HeadLayout&, const Queries&, int, const uint8_t*, const uint8_t*,
                         SpanScratch&, int);
using MixFn = void (*)(const HeadLayout&, const SpanKeys&, const SpanScratch&, int, int, int, int, float*);
constexpr ScoreFn SCORES[STRIP_QUERIES] = {score_page<1>, score_page<2>, score_page<3>,
                                           score_page<4>, score_page<5>, score_page<6>};
constexpr MixFn MIXES[STRIP_QUERIES] = {mix_rows<1>, mix_rows<2>, mix_rows<3>,
                                        mix_rows<4>, mix_rows<5>, mix_rows<6>};

inline void score_span(const HeadLayout& h, const Queries& q, const SpanKeys& keys, int p0, int p1,
                       SpanScratch& s) {
  for (int p = p0; p < p1; p++) {
    const uint8_t* next = keys.next[p];
    if (next) ask_for(next + h.key_scales, h.bytes - h.key_scales);
    for (int i = 0; i < q.count; i += STRIP_QUERIES) {
      const int count = q.count - i < STRIP_QUERIES ? q.count - i : STRIP_QUERIES;
      SCORES[count - 1](h, q, i, keys.pages[p], i == 0 ? next : nullptr, s, PAGE_TOKENS * p);
    }
  }
}

inline void mix_span(const HeadLayout& h, const Queries& q, const SpanKeys& keys, int p0, int p1,
                     const SpanScratch& s, float* mixed) {
  for (int i = 0; i < q.count; i += STRIP_QUERIES) {
    const int count = q.count - i < STRIP_QUERIES ? q.count - i : STRIP_QUERIES;
    MIXES[count - 1](h, keys, s, i, q.count, p0, p1, mixed);
  }
}

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
  const int p0 = from / PAGE_TOKENS, p1 = (upto + PAGE_TOKENS - 1) / PAGE_TOKENS;
  score_span(h, q, keys, p0, p1, scratch);
  for (int i = 0; i < q.count; i++)
    part[i] = weigh(scratch, i, q.count, p0, p1, low[i], high[i], keys, h.value_scales);
  mix_span(h, q, keys, p0, p1, scratch, mixed);
}

// One of the two keeps its weights, the other's shrink by the distance of the peaks.
void merge(const HeadLayout& h, Partial& into, float* mixed, const Partial& part, const float* values) {
  if (part.peak == -__builtin_inff() && part.total == 0.0f) return;  // the row sees nothing here
  const bool rises = part.peak > into.peak;
  const float distance = rises ? into.peak - part.peak : part.peak - into.peak;
  const F shrunk = exp_negative(splat(distance)), whole = splat(1.0f);
  const F keep = rises ? shrunk : whole, gain = rises ? whole : shrunk;
  into.peak = rises ? part.peak : into.peak;
  into.total = lane(fma(splat(part.total), gain, mul(splat(into.total), keep)), 0);
  for (int c = 0; c < h.width; c += 16)
    store(mixed + c, fma(load(values + c), gain, mul(load(mixed + c), keep)));
}

void finish(const HeadLayout& h, const Partial& part, const float* mixed, float* out) {
  const F total = splat(part.total);
  for (int c = 0; c < h.head_dim; c += 16)
    store_part(out + c, div(load(mixed + c), total), h.head_dim - c);
}
