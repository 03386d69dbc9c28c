// Attention's two integer products with AMX tiles: the same numbers as in attention.h.
//
// A tile of 16 cached keys is [quads][16 keys][4], and 32 cached values of 16 dimensions are
// [8 quads of keys][16 dimensions][4]: both are what a tile product reads, straight from the page.
#pragma once

// Tiles 0 to 5: [rows, ...]; 4 and 5 of `bytes` a row; 6 and 7: [quads, 64 bytes].
inline void configure_attention(int rows, int bytes, int quads) {
  TileConfig config{};
  config.palette = 1;
  for (int t = 0; t < 8; t++) {
    config.bytes[t] = static_cast<uint16_t>(t == 4 || t == 5 ? bytes : 64);
    config.rows[t] = static_cast<uint8_t>(t < 6 ? rows : quads);
  }
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
}

// Scores of every query against tiles [t0, t1) of 16 keys. Tiles 4 and 5 hold the queries' high and
// low parts, 16 quads of dimensions at a time.
inline void wide_score_span(const HeadLayout& h, const Queries& q, const SpanKeys& keys, int t0, int t1,
                            SpanScratch& s) {
  alignas(64) int32_t high[16][16], low[16][16];
  const int stride = 4 * h.quads;
  const int whole = h.quads < 16 ? h.quads : 16;
  if (h.quads > 16 && h.quads % 16) return score_span(h, q, keys, t0, t1, s);
  configure_attention(q.count, 4 * whole, whole);
  for (int t = t0; t < t1; t++) {
    const uint8_t* page = keys.pages[t / 2];
    const uint8_t* k = page + t % 2 * h.quads * 64;
    _tile_zero(0);
    _tile_zero(1);
    for (int c = 0; c < h.quads; c += whole) {
      if (t == t0 || h.quads > whole) {
        _tile_loadd(4, q.high + 4 * c, stride);
        _tile_loadd(5, q.low + 4 * c, stride);
      }
      _tile_loadd(6, k + 64 * c, 64);
      _tile_dpbsud(0, 4, 6);
      _tile_dpbsud(1, 5, 6);
    }
    _tile_stored(0, high, 64);
    _tile_stored(1, low, 64);
    const F scales = load(reinterpret_cast<const float*>(page + h.key_scales) + t % 2 * 16);
    for (int i = 0; i < q.count; i++)
      put_scores(load_int(high[i]), add(load_int(low[i]), splat(q.sum[i])), scales, q, i, s.scores[i] + 16 * t);
  }
  release_tiles();
}

// Weighted values over whole pages [t0 / 2, t1 / 2). Tiles 0 to 3: high and low dots of two chunks
// of 16 dimensions. 4 and 5: weights of 32 keys. 6 and 7: values of 32 keys.
inline void wide_mix_span(const HeadLayout& h, const Queries& q, const SpanKeys& keys, int t0, int t1,
                          const SpanScratch& s, float* mixed) {
  alignas(64) int32_t dots[4][16][16];
  configure_attention(q.count, PAGE_TOKENS, PAGE_TOKENS / 4);
  const int stride = h.width * 4;
  for (int dim = 0; dim < h.width; dim += 32) {
    const bool pair = dim + 16 < h.width;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int p = t0 / 2; p < t1 / 2; p++) {
      const uint8_t* v = keys.pages[p] + h.values + dim * 4;
      _tile_loadd(4, s.high[0] + PAGE_TOKENS * p, SPAN);
      _tile_loadd(5, s.low[0] + PAGE_TOKENS * p, SPAN);
      _tile_loadd(6, v, stride);
      _tile_dpbusd(0, 4, 6);
      _tile_dpbusd(1, 5, 6);
      if (!pair) continue;
      _tile_loadd(7, v + 64, stride);
      _tile_dpbusd(2, 4, 7);
      _tile_dpbusd(3, 5, 7);
    }
    _tile_stored(0, dots[0], 64);
    _tile_stored(1, dots[1], 64);
    _tile_stored(2, dots[2], 64);
    _tile_stored(3, dots[3], 64);
    for (int i = 0; i < q.count; i++) {
      float* out = mixed + i * h.width + dim;
      put_mixed(load_int(dots[0][i]), load_int(dots[1][i]), s, i, out);
      if (pair) put_mixed(load_int(dots[2][i]), load_int(dots[3][i]), s, i, out + 16);
    }
  }
  release_tiles();
}
