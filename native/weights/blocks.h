// GGUF's quantised blocks, as integers with a scale and a minimum per 32 weights.
#pragma once
#include <cstdint>
#include <string>

namespace outrider {

float float_of(uint16_t half);
uint16_t half_of(float value);  // nearest, ties to even

// 32 weights w = d q + m, or d (q - 8), or d (q - 128), as their kind says; d and m in half precision.
struct Unpacked {
  uint8_t q[32];
  uint16_t d;
  uint16_t m;
};

struct BlockFormat {
  int weights;
  int bytes;
  void (*unpack)(const uint8_t* src, Unpacked* out);
};

// The format of that name, or null for float formats.
const BlockFormat* block_format(const std::string& name);

}  // namespace outrider
