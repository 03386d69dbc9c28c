// Sixteen lanes with AVX-512 VNNI.
#pragma once
#include <immintrin.h>

#include <cstdint>

// Many rows go through tiles where the compiler knows them; see wide.h.
#ifdef __AMX_INT8__
#define OUTRIDER_WIDE_ROWS
#endif

namespace outrider {
namespace {

using F = __m512;
using I = __m512i;
using M = __mmask16;
using W = __m512i;  // 16 outputs x 4 bytes
constexpr bool BIASED = true;  // dot8 multiplies by q8 itself; its caller starts from -128 sum(x)

inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F a) { _mm512_storeu_ps(p, a); }
inline M first(int count) { return static_cast<M>(count >= 16 ? 0xffff : (1u << count) - 1); }
inline F load_part(const float* p, int count) { return _mm512_maskz_loadu_ps(first(count), p); }
inline void store_part(float* p, F a, int count) { _mm512_mask_storeu_ps(p, first(count), a); }
inline F splat(float a) { return _mm512_set1_ps(a); }
inline I splat(int32_t a) { return _mm512_set1_epi32(a); }
inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F div(F a, F b) { return _mm512_div_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F larger(F a, F b) { return _mm512_max_ps(a, b); }
inline F smaller(F a, F b) { return _mm512_min_ps(a, b); }
inline M less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline M at_most(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
inline M less(I a, I b) { return _mm512_cmplt_epi32_mask(a, b); }
inline M either(M a, M b) { return static_cast<M>(a | b); }
inline M both(M a, M b) { return static_cast<M>(a & b); }
inline F pick(M m, F a, F b) { return _mm512_mask_blend_ps(m, b, a); }
inline I pick(M m, I a, I b) { return _mm512_mask_blend_epi32(m, b, a); }
inline M between(int low, int high) {
  return static_cast<M>(first(high < 0 ? 0 : high) & ~first(low < 0 ? 0 : low));
}
inline bool any(M m) { return m != 0; }
inline F to_float(I a) { return _mm512_cvtepi32_ps(a); }
inline I to_int(F a) { return _mm512_cvtps_epi32(a); }
inline I add(I a, I b) { return _mm512_add_epi32(a, b); }
inline I sub(I a, I b) { return _mm512_sub_epi32(a, b); }
inline I bit_xor(I a, I b) { return _mm512_xor_si512(a, b); }
inline I load_int(const int32_t* p) { return _mm512_loadu_si512(p); }
inline void store_int(int32_t* p, I a) { _mm512_storeu_si512(p, a); }
inline I shift_left7(I a) { return _mm512_slli_epi32(a, 7); }
inline I shift_left8(I a) { return _mm512_slli_epi32(a, 8); }
inline I shift_right9(I a) { return _mm512_srli_epi32(a, 9); }  // unsigned
inline I shift_right7(I a) { return _mm512_srai_epi32(a, 7); }
inline I bits(F a) { return _mm512_castps_si512(a); }
inline F floats(I a) { return _mm512_castsi512_ps(a); }
inline I clear_sign(I a) { return _mm512_and_si512(a, _mm512_set1_epi32(0x7fffffff)); }
inline I larger(I a, I b) { return _mm512_max_epi32(a, b); }
inline I lanes() {
  return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}
// a * 2^n
inline F scale2(F a, I n) { return _mm512_scalef_ps(a, _mm512_cvtepi32_ps(n)); }
inline float sum_lanes(F a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
inline float max_lanes(F a) { return _mm512_reduce_max_ps(a); }
inline int32_t max_lanes(I a) { return _mm512_reduce_max_epi32(a); }
inline int32_t sum_lanes(I a) { return _mm512_reduce_add_epi32(a); }
inline F from_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void to_int8(int8_t* p, I a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(a));
}
// 16-bit integers as high and low bytes.
inline void split_bytes(I a, uint8_t* high, uint8_t* low) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm512_cvtepi32_epi8(a));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm512_cvtepi32_epi8(_mm512_srli_epi32(a, 8)));
}
// Halves of 16 pairs of bfloat16.
inline F even_bf16(const uint16_t* p) { return floats(_mm512_slli_epi32(_mm512_loadu_si512(p), 16)); }
inline F odd_bf16(const uint16_t* p) {
  return floats(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(int(0xffff0000))));
}
inline W load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline W low_half(W a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
inline W high_half(W a) { return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(15)); }
// acc[j] += sum_i w[j][i] * x[i], w unsigned; dot4 is told that w is below 32.
inline I dot4(I acc, W w, int32_t x) { return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x)); }
// The accumulator is one operand, read and written: told so, a compiler keeps a loop's sums in place.
inline I dot8(I acc, W w, I x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));
  return acc;
}
inline I dot8(I acc, W w, int32_t x) { return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x)); }
// acc[j] += sum_i x[i] * w[j][i], x unsigned and w signed.
inline I dot_signed(I acc, I x, W w) {
  asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(x), "v"(w));
  return acc;
}
// Low and high words of a * m, unsigned.
inline void multiply(I a, uint32_t m, I& low, I& high) {
  const I k = _mm512_set1_epi32(static_cast<int>(m));
  const I even = _mm512_mul_epu32(a, k);
  const I odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), k);
  low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
  high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
}

}  // namespace
}  // namespace outrider
