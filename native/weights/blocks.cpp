#include "weights/blocks.h"

#include <cmath>
#include <cstring>

namespace outrider {
namespace {

uint16_t half_at(const uint8_t* p) {
  uint16_t h;
  memcpy(&h, p, 2);
  return h;
}

// Low halves are weights 0 to 15, high halves 16 to 31.
void nibbles(const uint8_t* src, uint8_t* q) {
  for (int i = 0; i < 16; i++) {
    q[i] = src[i] & 15;
    q[i + 16] = src[i] >> 4;
  }
}

void fifth_bits(const uint8_t* src, uint8_t* q) {
  uint32_t bits;
  memcpy(&bits, src, 4);
  for (int i = 0; i < 32; i++) q[i] = static_cast<uint8_t>(q[i] | (bits >> i & 1) << 4);
}

void q4_0(const uint8_t* src, Unpacked* u) {
  u->d = half_at(src);
  nibbles(src + 2, u->q);
}

void q4_1(const uint8_t* src, Unpacked* u) {
  u->d = half_at(src);
  u->m = half_at(src + 2);
  nibbles(src + 4, u->q);
}

void q5_0(const uint8_t* src, Unpacked* u) {
  u->d = half_at(src);
  nibbles(src + 6, u->q);
  fifth_bits(src + 2, u->q);
  for (uint8_t& q : u->q) q = static_cast<uint8_t>(q + 112);  // d (q5 - 16) = d (q5 + 112 - 128)
}

void q5_1(const uint8_t* src, Unpacked* u) {
  u->d = half_at(src);
  u->m = half_at(src + 2);
  nibbles(src + 8, u->q);
  fifth_bits(src + 4, u->q);
}

void q8_0(const uint8_t* src, Unpacked* u) {
  u->d = half_at(src);
  for (int i = 0; i < 32; i++) u->q[i] = src[2 + i] ^ 0x80;
}

// Eight 6-bit scales and eight 6-bit minima in 12 bytes.
void six_bit(const uint8_t* s, int j, int& scale, int& minimum) {
  if (j < 4) {
    scale = s[j] & 63;
    minimum = s[j + 4] & 63;
  } else {
    scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    minimum = s[j + 4] >> 4 | (s[j] >> 6) << 4;
  }
}

// The block's scale times a 6-bit integer, rounded to half precision.
void k_quant(const uint8_t* src, const uint8_t* fifth, const uint8_t* quants, Unpacked* u) {
  const float d = float_of(half_at(src)), dmin = float_of(half_at(src + 2));
  for (int j = 0; j < 8; j++) {
    int scale, minimum;
    six_bit(src + 4, j, scale, minimum);
    u[j].d = half_of(d * static_cast<float>(scale));
    u[j].m = half_of(-dmin * static_cast<float>(minimum));
    for (int i = 0; i < 32; i++) {
      const uint8_t byte = quants[j / 2 * 32 + i];
      u[j].q[i] = j % 2 ? byte >> 4 : byte & 15;
      if (fifth) u[j].q[i] = static_cast<uint8_t>(u[j].q[i] | (fifth[i] >> j & 1) << 4);
    }
  }
}

void q4_k(const uint8_t* src, Unpacked* u) { k_quant(src, nullptr, src + 16, u); }
void q5_k(const uint8_t* src, Unpacked* u) { k_quant(src, src + 16, src + 48, u); }

// 32 floats to 8 bits with a half-precision scale.
void requantise(const float* w, Unpacked& u) {
  float peak = 0.0f;
  for (int i = 0; i < 32; i++) peak = std::fmax(peak, std::fabs(w[i]));
  u.d = half_of(peak / 127.0f);
  const float d = float_of(u.d);
  const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
  for (int i = 0; i < 32; i++) {
    const float q = std::nearbyint(std::fmin(std::fmax(w[i] * inverse, -127.0f), 127.0f));
    u.q[i] = static_cast<uint8_t>(static_cast<int>(q) + 128);
  }
}

// Q6_K has a scale for every 16 weights: its 6-bit integers become 8-bit ones per 32.
void q6_k(const uint8_t* src, Unpacked* u) {
  const float d = float_of(half_at(src + 208));
  float w[256];
  for (int half = 0; half < 2; half++) {
    const uint8_t* low = src + 64 * half;
    const uint8_t* high = src + 128 + 32 * half;
    const int8_t* scales = reinterpret_cast<const int8_t*>(src + 192 + 8 * half);
    for (int part = 0; part < 4; part++) {
      for (int i = 0; i < 32; i++) {
        const uint8_t byte = low[part % 2 * 32 + i];
        const int q = (part < 2 ? byte & 15 : byte >> 4) | (high[i] >> 2 * part & 3) << 4;
        const float scale = d * static_cast<float>(scales[2 * part + i / 16]);
        w[128 * half + 32 * part + i] = scale * static_cast<float>(q - 32);
      }
    }
  }
  for (int b = 0; b < 8; b++) requantise(w + 32 * b, u[b]);
}

struct Named {
  const char* name;
  BlockFormat format;
};
constexpr Named FORMATS[] = {
    {"Q8_0", {32, 34, q8_0}},   {"Q4_0", {32, 18, q4_0}},   {"Q4_1", {32, 20, q4_1}},
    {"Q5_0", {32, 22, q5_0}},   {"Q5_1", {32, 24, q5_1}},   {"Q4_K", {256, 144, q4_k}},
    {"Q5_K", {256, 176, q5_k}}, {"Q6_K", {256, 210, q6_k}},
};

}  // namespace

float float_of(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t rest = half & 0x7fffu;
  uint32_t word = rest >= 0x7c00 ? 0x7f800000u | (rest & 0x3ff) << 13 : rest << 13;
  float value;
  memcpy(&value, &word, 4);
  // The exponent fields differ by 112; the multiplication also makes subnormals come out right.
  if (rest < 0x7c00) value *= 5.192296858534828e33f;
  memcpy(&word, &value, 4);
  word |= sign;
  memcpy(&value, &word, 4);
  return value;
}

uint16_t half_of(float value) {
  uint32_t word;
  memcpy(&word, &value, 4);
  const uint16_t sign = static_cast<uint16_t>(word >> 16 & 0x8000);
  word &= 0x7fffffff;
  if (word > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (word >= 0x47800000) return static_cast<uint16_t>(sign | 0x7c00);
  if (word < 0x38800000) {
    // Subnormal: adding 0.5 leaves the nearest multiple of 2^-24 in the low bits.
    float magnitude;
    memcpy(&magnitude, &word, 4);
    magnitude += 0.5f;
    memcpy(&word, &magnitude, 4);
    return static_cast<uint16_t>(sign | (word - 0x3f000000));
  }
  const uint32_t odd = word >> 13 & 1;
  return static_cast<uint16_t>(sign | (word - 0x38000000 + 0xfff + odd) >> 13);
}

const BlockFormat* block_format(const std::string& name) {
  for (const Named& named : FORMATS)
    if (name == named.name) return &named.format;
  return nullptr;
}

}  // namespace outrider
