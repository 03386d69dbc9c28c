// The operators of one code path. Every function computes a row from that row's inputs alone, in
// an order that the shapes fix; callers may cut the work among threads as they like.
#pragma once
#include "cache/pages.h"
#include "weights/matrix.h"

namespace outrider {

// Running best of one activation row, lane by lane: lane l has seen outputs 16 t + l.
struct alignas(64) Best {
  float value[TILE];
  int32_t id[TILE];
  float poison[TILE];  // 0 while every output seen was finite, NaN afterwards
};

// How the head's outputs become scores: value / temperature + noise, or the value itself.
struct Draw {
  float temperature;  // 0: the value itself
  uint32_t seed_low;
  uint32_t seed_high;
  uint32_t position;
};

// What joins the outputs of a product before they compete.
struct Shift {
  const float* const* rows;  // added to each row's outputs
  const int32_t* ids;        // the outputs' ids for the noise, padded to whole tiles, or null
};

// Where a product's outputs go: data[r * ld + col] = or, with `add`, += value.
struct Outputs {
  float* data;
  size_t ld;
  bool add;
};

// Keys of one span, page by page.
struct SpanKeys {
  const uint8_t* pages[SPAN_PAGES];
  const uint8_t* next[SPAN_PAGES];  // the pages to be read after this span, or null
};

constexpr int MAX_QUERIES = 12;

// Queries that share key heads, in the form that a format of keys wants; see keys.h.
struct Queries {
  int count;
  uint8_t* data;
  float scale[MAX_QUERIES];
  int32_t sum[MAX_QUERIES];  // -128 * sum of the 16-bit integers
};

// Softmax of one span (or of several, merged): peak, total weight, weighted values [width].
struct Partial {
  float peak;
  float total;
};

// What depends on the format of keys and values.
struct KeyOps {
  void (*write)(const HeadLayout& layout, uint8_t* head, int slot, const float* k, const float* v);
  void (*load_queries)(const HeadLayout& layout, const float* const* q, int count, Queries& out);
  void (*attend)(const HeadLayout& layout, const Queries& q, const SpanKeys& keys,
                 const int* low, const int* high, Partial* part, float* mixed);
};

struct Path {
  const char* name;
  KeyOps key_ops[KEY_FORMATS];
  // y = x / sqrt(mean(x^2) + eps) * weight
  void (*norm)(const float* x, const float* weight, float eps, int cols, float* y);
  // Quantise one row into its lines.
  void (*quantize)(const float* x, int cols, const Acts& acts, int row);
  // Products of tiles [low, high) with rows [0, n), bias included. `after`: memory that is read
  // next, if not the tiles that follow.
  void (*product)(const Matrix& m, int low, int high, const Acts& acts, int n, const Outputs& out,
                  const uint8_t* after);
  // Products of gate and up for feed-forward columns 32 [low, high), gated, as rows of `out`
  // (integers, floats or both); `wide` is scratch [n, 64], `after` as for product.
  void (*gated)(const Matrix& m, int low, int high, const Acts& acts, int n, const Acts& out,
                float* wide, const uint8_t* after);
  void (*swiglu)(const float* gate, const float* up, int count, float* out);
  void (*rotate)(const float* x, const float* cos, const float* sin, int head_dim, float* out);
  void (*merge)(const HeadLayout& layout, Partial& into, float* mixed, const Partial& part,
                const float* values);
  void (*finish)(const HeadLayout& layout, const Partial& part, const float* mixed, float* out);
  // `draws` and `shift` may be null.
  void (*best)(const Matrix& m, int low, int high, const Acts& acts, int n, const Draw* draws,
               const Shift* shift, Best* best);
  void (*gumbel)(const Draw& key, uint32_t stream, const int64_t* ids, int64_t count, float* out);
  void (*embed)(const Matrix& m, int row, float* out);

  const KeyOps& keys_of(const HeadLayout& layout) const { return key_ops[static_cast<int>(layout.format)]; }
};

const Path* path_avx512vnni();
const Path* path_avx2();
const Path* path_portable();

}  // namespace outrider
