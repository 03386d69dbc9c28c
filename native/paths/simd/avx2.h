// Sixteen lanes as two AVX2 registers, with FMA and F16C.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace outrider {
namespace {

struct F { __m256 a, b; };
struct I { __m256i a, b; };
struct M { __m256 a, b; };  // all ones or all zeros per lane
struct W { __m256i a, b; };
constexpr bool BIASED = false;  // dot8 multiplies by q8 - 128

inline F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, F x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
inline I lanes() {
  return {_mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0), _mm256_set_epi32(15, 14, 13, 12, 11, 10, 9, 8)};
}
inline I splat(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline F splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline I greater(I x, I y) { return {_mm256_cmpgt_epi32(x.a, y.a), _mm256_cmpgt_epi32(x.b, y.b)}; }
inline M between(int low, int high) {
  const I lo = greater(lanes(), splat(low - 1)), hi = greater(splat(high), lanes());
  return {_mm256_castsi256_ps(_mm256_and_si256(lo.a, hi.a)),
          _mm256_castsi256_ps(_mm256_and_si256(lo.b, hi.b))};
}
inline F load_part(const float* p, int count) {
  const M m = between(0, count);
  return {_mm256_maskload_ps(p, _mm256_castps_si256(m.a)),
          _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.b))};
}
inline void store_part(float* p, F x, int count) {
  const M m = between(0, count);
  _mm256_maskstore_ps(p, _mm256_castps_si256(m.a), x.a);
  _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.b), x.b);
}
inline F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F fma(F x, F y, F z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline F larger(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F smaller(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline M less(F x, F y) {
  return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}
inline M at_most(F x, F y) {
  return {_mm256_cmp_ps(x.a, y.a, _CMP_LE_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LE_OQ)};
}
inline M less(I x, I y) {
  const I m = greater(y, x);
  return {_mm256_castsi256_ps(m.a), _mm256_castsi256_ps(m.b)};
}
inline M either(M x, M y) { return {_mm256_or_ps(x.a, y.a), _mm256_or_ps(x.b, y.b)}; }
inline M both(M x, M y) { return {_mm256_and_ps(x.a, y.a), _mm256_and_ps(x.b, y.b)}; }
inline F pick(M m, F x, F y) {
  return {_mm256_blendv_ps(y.a, x.a, m.a), _mm256_blendv_ps(y.b, x.b, m.b)};
}
inline I bits(F x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
inline F floats(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
inline I pick(M m, I x, I y) { return bits(pick(m, floats(x), floats(y))); }
inline bool any(M m) { return _mm256_movemask_ps(_mm256_or_ps(m.a, m.b)) != 0; }
inline F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline I to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline I add(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline I sub(I x, I y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
inline I bit_xor(I x, I y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
inline I load_int(const int32_t* p) {
  const __m256i* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline void store_int(int32_t* p, I x) {
  __m256i* q = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(q, x.a);
  _mm256_storeu_si256(q + 1, x.b);
}
inline I shift_left8(I x) { return {_mm256_slli_epi32(x.a, 8), _mm256_slli_epi32(x.b, 8)}; }
inline I shift_right9(I x) { return {_mm256_srli_epi32(x.a, 9), _mm256_srli_epi32(x.b, 9)}; }  // unsigned
inline I shift_right7(I x) { return {_mm256_srai_epi32(x.a, 7), _mm256_srai_epi32(x.b, 7)}; }
inline I shift_left7(I x) { return {_mm256_slli_epi32(x.a, 7), _mm256_slli_epi32(x.b, 7)}; }
inline I clear_sign(I x) {
  const __m256i m = _mm256_set1_epi32(0x7fffffff);
  return {_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}
inline I larger(I x, I y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
inline __m256 power2(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
inline __m256 scale2(__m256 x, __m256i n) {
  const __m256i half = _mm256_srai_epi32(n, 1);
  return _mm256_mul_ps(_mm256_mul_ps(x, power2(half)), power2(_mm256_sub_epi32(n, half)));
}
// x * 2^n in two steps, so that 2^n itself need not be representable.
inline F scale2(F x, I n) { return {scale2(x.a, n.a), scale2(x.b, n.b)}; }
inline float sum_lanes(F x) {
  const __m256 h = _mm256_add_ps(x.a, x.b);
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
inline float max_lanes(F x) {
  const __m256 h = _mm256_max_ps(x.a, x.b);
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}
inline int32_t max_lanes(I x) {
  const __m256i h = _mm256_max_epi32(x.a, x.b);
  __m128i q = _mm_max_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
  q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
inline int32_t sum_lanes(I x) {
  const __m256i h = _mm256_add_epi32(x.a, x.b);
  __m128i q = _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
  q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}
inline F from_half(const uint16_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
inline void to_int8(int8_t* p, I x) {
  const __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  const __m128i b = _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), b);
}
// 16-bit integers as high and low bytes.
inline void split_bytes(I x, uint8_t* high, uint8_t* low) {
  const __m256i w = _mm256_permute4x64_epi64(_mm256_packus_epi32(x.a, x.b), 0xd8);
  const __m256i h = _mm256_srli_epi16(w, 8), l = _mm256_and_si256(w, _mm256_set1_epi16(255));
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(l, h), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm256_castsi256_si128(bytes));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm256_extracti128_si256(bytes, 1));
}
inline F even_bf16(const uint16_t* p) {
  const I x = load_int(reinterpret_cast<const int32_t*>(p));
  return floats(I{_mm256_slli_epi32(x.a, 16), _mm256_slli_epi32(x.b, 16)});
}
inline F odd_bf16(const uint16_t* p) {
  const I x = load_int(reinterpret_cast<const int32_t*>(p));
  const __m256i m = _mm256_set1_epi32(static_cast<int>(0xffff0000));
  return floats(I{_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)});
}
inline W load_bytes(const uint8_t* p) {
  const __m256i* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline W low_half(W x) {
  const __m256i m = _mm256_set1_epi8(15);
  return {_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)};
}
inline W high_half(W x) {
  return low_half(W{_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)});
}
// Pairs of products of bytes below 32 with int8 fit int16, so nothing saturates.
inline __m256i dot4(__m256i acc, __m256i w, __m256i x) {
  return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
}
inline I dot4(I acc, W w, int32_t x) {
  const __m256i b = _mm256_set1_epi32(x);
  return {dot4(acc.a, w.a, b), dot4(acc.b, w.b, b)};
}
// |w| <= 128 and |x| <= 127: a pair is at most 32,512, so nothing saturates here either.
inline __m256i dot8(__m256i acc, __m256i w, __m256i x) {
  const __m256i s = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
  return dot4(acc, _mm256_abs_epi8(s), _mm256_sign_epi8(x, s));
}
inline I dot8(I acc, W w, I x) { return {dot8(acc.a, w.a, x.a), dot8(acc.b, w.b, x.b)}; }
inline I dot8(I acc, W w, int32_t x) { return dot8(acc, w, splat(x)); }
// Pairs of an unsigned byte times |w| <= 127 may pass int16, so bytes are widened first.
inline __m256i dot_signed(__m256i acc, __m256i x, __m256i w) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(x, _mm256_set1_epi16(255)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(x, 8), _mm256_srai_epi16(w, 8));
  return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
}
// acc[j] += sum_i x[i] * w[j][i], x unsigned and w signed.
inline I dot_signed(I acc, I x, W w) { return {dot_signed(acc.a, x.a, w.a), dot_signed(acc.b, x.b, w.b)}; }
inline void multiply(__m256i x, __m256i k, __m256i& low, __m256i& high) {
  const __m256i even = _mm256_mul_epu32(x, k);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), k);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}
inline void multiply(I x, uint32_t m, I& low, I& high) {
  const __m256i k = _mm256_set1_epi32(static_cast<int>(m));
  multiply(x.a, k, low.a, high.a);
  multiply(x.b, k, low.b, high.b);
}

}  // namespace
}  // namespace outrider
