// Attention over spans of cached keys, of any format in keys.h.
//
// A span is computed by itself: its peak, its total weight and its weighted values, in an order that
// counts from the span's first token. A row sees the other rows of its tile, whose keys are visited
// with it, only as weights of exactly 0, or not at all.
#pragma once
#include "memory/prefetch.h"
#include "paths/keys.h"
#include "paths/path.h"
#include "paths/pointwise.h"
#include "paths/simd.h"

namespace outrider {
namespace {

constexpr int STRIP_QUERIES = 6;  // queries that share a load of keys or values

template <class K>
void write(const HeadLayout& h, uint8_t* head, int slot, const float* k, const float* v) {
  using Element = typename K::Element;
  const int d = h.head_dim;
  const auto key_rounding = K::rounding(k, d), value_rounding = K::rounding(v, d);
  uint8_t* keys = head + (slot / 16) * h.lines * 64 + slot % 16 * 4;
  Element* values = reinterpret_cast<Element*>(head + h.values) + slot / K::PER * h.width * K::PER + slot % K::PER;
  for (int c = 0; c < d; c += 16) {
    alignas(64) Element q[16];
    K::round(load_part(k + c, d - c), key_rounding, q);
    for (int i = 0; i < 16 / K::PER && c / K::PER + i < h.lines; i++) {
      uint32_t word;
      __builtin_memcpy(&word, q + K::PER * i, 4);
      word ^= K::KEY_BIAS;
      __builtin_memcpy(keys + (c / K::PER + i) * 64, &word, 4);
    }
    K::round(load_part(v + c, d - c), value_rounding, q);
    for (int i = 0; i < 16; i++) values[(c + i) * K::PER] = q[i];
  }
  K::put_scales(h, head, slot, key_rounding, value_rounding);
}

template <class K>
void load_queries(const HeadLayout& h, const float* const* q, int count, Queries& out) {
  const float norm = 1.0f / __builtin_sqrtf(static_cast<float>(h.head_dim));
  out.count = count;
  for (int i = 0; i < count; i++) K::load_query(h, q[i], norm, i, out);
}

// Scores of Q queries against a page. Loops over queries and tiles must be unrolled: running sums
// that a loop indexes live in memory. The next page is asked for line by line, as this one is read:
// asked for at once, much of it would come no earlier than when it is needed.
template <class K, int Q>
void score_page(const HeadLayout& h, const Queries& q, int from, const uint8_t* page,
                const uint8_t* next, SpanScratch& s, int at) {
  constexpr int T = PAGE_TOKENS / 16;
  typename K::Dots sums[T][Q];
#pragma GCC unroll 2
  for (int t = 0; t < T; t++) {
#pragma GCC unroll 6
    for (int i = 0; i < Q; i++) sums[t][i] = K::start(q, from + i);
  }
  int c = 0;
  do {
    typename K::Line k[T];
#pragma GCC unroll 2
    for (int t = 0; t < T; t++) {
      k[t] = K::line(page + (t * h.lines + c) * 64);
      if (next) ask_for(next + (t * h.lines + c) * 64, 64);
    }
#pragma GCC unroll 6
    for (int i = 0; i < Q; i++) {
      const typename K::Query x = K::query(h, q, from + i, c);
#pragma GCC unroll 2
      for (int t = 0; t < T; t++) K::dot(sums[t][i], k[t], x);
    }
  } while (++c < h.lines);
#pragma GCC unroll 2
  for (int t = 0; t < T; t++) {
#pragma GCC unroll 6
    for (int i = 0; i < Q; i++)
      store(s.scores[from + i] + at + 16 * t, K::score(sums[t][i], h, page, t, q, from + i));
  }
}

// One span as the queries of a task see it: query i sees keys low[i] .. high[i] - 1, all of which lie
// in pages [p0, p1).
struct View {
  const HeadLayout& layout;
  const SpanKeys& keys;
  const int* low;
  const int* high;
  int p0, p1;
  int count;  // queries
};

// Turn the scores of one query over N pages into weights; keys that it does not see get weight 0.
// ALL: it sees every key, which saves asking.
template <class K, int N, bool ALL>
Partial weigh_pages(const View& view, int i, SpanScratch& scratch) {
  constexpr int T = N * PAGE_TOKENS / 16;
  const int first = view.p0 * PAGE_TOKENS, low = view.low[i], high = view.high[i];
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
#pragma GCC unroll 8
  for (int t = 0; t < T; t++) {
    const int at = first + 16 * t;
    const F e = exp_negative(sub(w[t], splat(peak)));
    w[t] = K::weight(e, view.layout, view.keys.pages[view.p0 + t / 2], t % 2);
    if constexpr (ALL) {
      total = add(total, e);
    } else {
      const M seen = between(low - at, high - at);
      total = add(total, pick(seen, e, none));
      w[t] = pick(seen, w[t], none);
    }
  }
  K::put_weights(w, scratch, i, view.count, first);
  return {peak, sum_lanes(total)};
}

template <class K, int N>
Partial weigh_some(const View& view, int i, SpanScratch& scratch) {
  if (view.low[i] <= view.p0 * PAGE_TOKENS && view.high[i] >= (view.p0 + N) * PAGE_TOKENS)
    return weigh_pages<K, N, true>(view, i, scratch);
  return weigh_pages<K, N, false>(view, i, scratch);
}

// As weigh_pages, over all pages. The number of pages does not change bits: hidden keys add 0.
template <class K>
Partial weigh(const View& view, int i, SpanScratch& scratch) {
  static_assert(SPAN_PAGES == 4);
  switch (view.p1 - view.p0) {
    case 0: scratch.scale[i] = 0.0f; return {-__builtin_inff(), 0.0f};
    case 1: return weigh_some<K, 1>(view, i, scratch);
    case 2: return weigh_some<K, 2>(view, i, scratch);
    case 3: return weigh_some<K, 3>(view, i, scratch);
    default: return weigh_some<K, 4>(view, i, scratch);
  }
}

// Lines of values that a strip of queries visits: all of them see every token of lines
// [whole, rest), some see some of those in [first, whole) and [rest, end).
struct Reach {
  int first, whole, rest, end;
};

template <class K>
Reach reach_of(const View& view, int from, int count) {
  if constexpr (!K::SKIPS) {
    const int first = view.p0 * PAGE_TOKENS / K::PER, end = view.p1 * PAGE_TOKENS / K::PER;
    return {first, first, end, end};
  }
  int least = SPAN, most = 0, all_low = 0, all_high = SPAN;
  for (int i = from; i < from + count; i++) {
    const int low = view.low[i], high = view.high[i];
    if (low < high && low < least) least = low;
    if (low < high && high > most) most = high;
    all_low = low > all_low ? low : all_low;
    all_high = high < all_high ? high : all_high;
  }
  if (least >= most) return {0, 0, 0, 0};
  const int first = least / K::PER, end = (most + K::PER - 1) / K::PER;
  const int whole = (all_low + K::PER - 1) / K::PER, rest = all_high / K::PER;
  return whole < rest ? Reach{first, whole, rest, end} : Reach{first, end, end, end};
}

// Add lines [line, end) of values to the sums of Q queries in C chunks of 16 dimensions from `dim`
// on. ALL: every query sees every token. Always inlined, so that the sums stay in registers.
template <class K, int Q, int C, bool ALL>
[[gnu::always_inline]] inline void mix_lines(const View& view, const SpanScratch& s, int from, int dim, int line,
                                             int end, typename K::Sums (&sums)[Q][C]) {
  constexpr int LINES = PAGE_TOKENS / K::PER;
  const HeadLayout& h = view.layout;
  const bool asks = from == 0;
  for (; line < end; line++) {
    const size_t at = h.values + (line % LINES * h.width + dim) * size_t{4};
    const uint8_t* v = view.keys.pages[line / LINES] + at;
    typename K::Line value[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) value[c] = K::line(v + 64 * c);
    if (asks && view.keys.next[line / LINES]) ask_for(view.keys.next[line / LINES] + at, 64 * C);
#pragma GCC unroll 6
    for (int i = 0; i < Q; i++) {
      const typename K::Weights w = K::weights(s, from + i, view.count, line);
      if constexpr (ALL) {
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) K::mix(sums[i][c], value[c], w);
      } else {
#pragma GCC unroll 2
        for (int p = 0; p < K::PER; p++) {
          const int token = line * K::PER + p;
          if (token < view.low[from + i] || token >= view.high[from + i]) continue;
#pragma GCC unroll 4
          for (int c = 0; c < C; c++) K::mix_one(sums[i][c], value[c], w, p);
        }
      }
    }
  }
}

// Weighted values of Q queries in C chunks of 16 dimensions.
template <class K, int Q, int C>
void mix(const View& view, const SpanScratch& s, int from, const Reach& reach, int dim, float* mixed) {
  typename K::Sums sums[Q][C];
#pragma GCC unroll 6
  for (int i = 0; i < Q; i++) {
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) sums[i][c] = K::none();
  }
  if constexpr (K::SKIPS) mix_lines<K, Q, C, false>(view, s, from, dim, reach.first, reach.whole, sums);
  mix_lines<K, Q, C, true>(view, s, from, dim, reach.whole, reach.rest, sums);
  if constexpr (K::SKIPS) mix_lines<K, Q, C, false>(view, s, from, dim, reach.rest, reach.end, sums);
#pragma GCC unroll 6
  for (int i = 0; i < Q; i++) {
#pragma GCC unroll 4
    for (int c = 0; c < C; c++)
      store(mixed + (from + i) * view.layout.width + dim + 16 * c, K::mixed(sums[i][c], s, from + i));
  }
}

template <class K, int Q>
void mix_rows(const View& view, const SpanScratch& s, int from, float* mixed) {
  constexpr int C = Q <= 3 ? 4 : 2;
  const Reach reach = reach_of<K>(view, from, Q);
  int dim = 0;
  for (; dim + 16 * C <= view.layout.width; dim += 16 * C) mix<K, Q, C>(view, s, from, reach, dim, mixed);
  for (; dim < view.layout.width; dim += 16) mix<K, Q, 1>(view, s, from, reach, dim, mixed);
}

using ScoreFn = void (*)(const HeadLayout&, const Queries&, int, const uint8_t*, const uint8_t*,
                         SpanScratch&, int);
using MixFn = void (*)(const View&, const SpanScratch&, int, float*);
template <class K>
constexpr ScoreFn SCORES[STRIP_QUERIES] = {score_page<K, 1>, score_page<K, 2>, score_page<K, 3>,
                                           score_page<K, 4>, score_page<K, 5>, score_page<K, 6>};
template <class K>
constexpr MixFn MIXES[STRIP_QUERIES] = {mix_rows<K, 1>, mix_rows<K, 2>, mix_rows<K, 3>,
                                        mix_rows<K, 4>, mix_rows<K, 5>, mix_rows<K, 6>};

template <class K>
void score_span(const View& view, const Queries& q, SpanScratch& s) {
  const HeadLayout& h = view.layout;
  for (int p = view.p0; p < view.p1; p++) {
    const uint8_t* next = view.keys.next[p];
    if (next) ask_for(next + h.key_scales, h.bytes - h.key_scales);
    for (int i = 0; i < q.count; i += STRIP_QUERIES) {
      const int count = q.count - i < STRIP_QUERIES ? q.count - i : STRIP_QUERIES;
      SCORES<K>[count - 1](h, q, i, view.keys.pages[p], i == 0 ? next : nullptr, s, PAGE_TOKENS * p);
    }
  }
}

template <class K>
void mix_span(const View& view, const SpanScratch& s, float* mixed) {
  for (int i = 0; i < view.count; i += STRIP_QUERIES) {
    const int count = view.count - i < STRIP_QUERIES ? view.count - i : STRIP_QUERIES;
    MIXES<K>[count - 1](view, s, i, mixed);
  }
}

// Query i sees keys low[i] .. high[i] - 1 of the span.
template <class K>
void attend(const HeadLayout& h, const Queries& q, const SpanKeys& keys, const int* low,
            const int* high, Partial* part, float* mixed) {
  SpanScratch scratch;
  int from = SPAN, upto = 0;
  for (int i = 0; i < q.count; i++) {
    if (low[i] >= high[i]) continue;
    from = low[i] < from ? low[i] : from;
    upto = high[i] > upto ? high[i] : upto;
  }
  if (from >= upto) from = upto = 0;
  const View view{h, keys, low, high, from / PAGE_TOKENS, (upto + PAGE_TOKENS - 1) / PAGE_TOKENS, q.count};
  score_span<K>(view, q, scratch);
  for (int i = 0; i < q.count; i++) part[i] = weigh<K>(view, i, scratch);
  mix_span<K>(view, scratch, mixed);
}

template <class K>
constexpr KeyOps key_ops() {
  return {write<K>, load_queries<K>, attend<K>};
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

}  // namespace
}  // namespace outrider
