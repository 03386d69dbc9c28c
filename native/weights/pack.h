// Turns a checkpoint's matrix into tiles, once, at load.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "memory/memory.h"
#include "threads/pool.h"
#include "weights/matrix.h"

namespace outrider {

// A checkpoint's matrix [rows, cols]: rows of blocks, or of floats.
struct RawPart {
  const uint8_t* data;
  std::string format;  // GGUF's name, or F32, F16, BF16
  int rows;
  int cols;
};

// A packed matrix and the memory it lives in.
struct Packed {
  Matrix matrix{};
  std::vector<Part> parts;
  std::shared_ptr<Memory> memory;
  std::vector<float> bias;
  size_t bytes = 0;
};

std::unique_ptr<Packed> pack(Pool& pool, Arena& arena, const std::vector<RawPart>& raw, const float* bias);

}  // namespace outrider
