// Attention's two integer products with AMX tiles: the same numbers as in attention.h.
//
// A tile of 16 cached keys is [quads][16 keys][4], and 32 cached values of 16 dimensions are
// [8 quads of keys][16 dimensions][4]: both are what a tile product reads, straight from the page.
// A tile product costs the same for 1 row and for 16, so high and low lines share one when they fit.
#pragma once

// Tiles 0 to 3: [rows, 16] dots; 4 and 5: [rows, bytes] lines; 6 and 7: [quads, 64 bytes].
inline void configure_attention(int rows, int bytes, int quads) {
  TileConfig config{};
  config.palette = 1;
  for (int t = 0; t < 8; t++) {
    config.bytes[t] = static_cast<uint16_t>(t == 4 || t == 5 ? bytes : 64);
    config.rows[t] = static_cast<uint8_t>(t < 6 ? rows : quads);
  }
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
}

inline bool shares_tile(const Queries& q) { return 2 * q.count <= 16; }

// Scores of every query against pages [p0, p1), 16 keys and 16 quads of dimensions at a time.
inline void wide_score_span(const HeadLayout& h, const Queries& q, const SpanKeys& keys, int p0, int p1,
                            SpanScratch& s) {
  alignas(64) int32_t dots[2 * TILE][TILE];
  const int stride = 4 * h.quads;
  const int whole = h.quads < 16 ? h.quads : 16;
  if (h.quads > 16 && h.quads % 16) return score_span(h, q, keys, p0, p1, s);
  const bool shared = shares_tile(q);
  configure_attention(shared ? 2 * q.count : q.count, 4 * whole, whole);
  for (int t = 2 * p0; t < 2 * p1; t++) {
    const uint8_t* page = keys.pages[t / 2];
    const uint8_t* k = page + t % 2 * h.quads * 64;
    const uint8_t* next = keys.next[t / 2];
    if (next) ask_for(next + t % 2 * h.quads * 64, h.quads * 64);
    if (next && t % 2) ask_for(next + h.key_scales, h.bytes - h.key_scales);
    _tile_zero(0);
    _tile_zero(1);
    for (int c = 0; c < h.quads; c += whole) {
      if (t == 2 * p0 || h.quads > whole) {
        _tile_loadd(4, q.high + 4 * c, stride);
        if (!shared) _tile_loadd(5, q.low + 4 * c, stride);
      }
      _tile_loadd(6, k + 64 * c, 64);
      _tile_dpbsud(0, 4, 6);
      if (!shared) _tile_dpbsud(1, 5, 6);
    }
    _tile_stored(0, dots, 64);
    if (!shared) _tile_stored(1, dots[q.count], 64);
    const F scales = load(reinterpret_cast<const float*>(page + h.key_scales) + t % 2 * 16);
    for (int i = 0; i < q.count; i++) {
      const I low = add(load_int(dots[q.count + i]), splat(q.sum[i]));
      put_scores(load_int(dots[i]), low, scales, q, i, s.scores[i] + 16 * t);
    }
  }
  release_tiles();
}

// Add 32 weighted values of one chunk of 16 dimensions, at `v`, to tiles A (and B: low lines).
#define OUTRIDER_MIX(A, B, V, AT)                \
  _tile_loadd(V, AT, stride);                    \
  _tile_dpbusd(A, 4, V);                         \
  if (!shared) _tile_dpbusd(B, 5, V);

// Weighted values over pages [p0, p1), two chunks of 16 dimensions at a time.
inline void wide_mix_span(const HeadLayout& h, const Queries& q, const SpanKeys& keys, int p0, int p1,
                          const SpanScratch& s, float* mixed) {
  alignas(64) int32_t dots[2][2 * TILE][TILE];
  const bool shared = shares_tile(q);
  configure_attention(shared ? 2 * q.count : q.count, PAGE_TOKENS, PAGE_TOKENS / 4);
  const int stride = h.width * 4;
  for (int dim = 0; dim < h.width; dim += 32) {
    const bool pair = dim + 16 < h.width;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int p = p0; p < p1; p++) {
      const uint8_t* v = keys.pages[p] + h.values + dim * 4;
      if (dim == 0 && keys.next[p]) ask_for(keys.next[p] + h.values, h.key_scales - h.values);
      _tile_loadd(4, s.bytes[0] + PAGE_TOKENS * p, SPAN);
      if (!shared) _tile_loadd(5, s.bytes[q.count] + PAGE_TOKENS * p, SPAN);
      OUTRIDER_MIX(0, 1, 6, v)
      if (!pair) continue;
      OUTRIDER_MIX(2, 3, 7, v + 64)
    }
    _tile_stored(0, dots[0], 64);
    _tile_stored(2, dots[1], 64);
    if (!shared) {
      _tile_stored(1, dots[0][q.count], 64);
      _tile_stored(3, dots[1][q.count], 64);
    }
    for (int i = 0; i < q.count; i++) {
      float* out = mixed + i * h.width + dim;
      for (int c = 0; c < (pair ? 2 : 1); c++)
        put_mixed(load_int(dots[c][i]), load_int(dots[c][q.count + i]), s, i, out + 16 * c);
    }
  }
  release_tiles();
}
#undef OUTRIDER_MIX
