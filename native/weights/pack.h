// Turns a checkpoint's matrix into tiles, once, at load.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "threads/pool.h"
#include "weights/matrix.h"

namespace outrider {

// Anonymous memory from the operating system, in huge pages if it has them: zero, and not resident
// until touched.
class Memory {
 public:
  explicit Memory(size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* data_;
  size_t bytes_;
};

// Hands out pieces of large memories, which live as long as any piece: a small matrix of its own
// would lie in small pages, where asking for the next lines of memory stops at every page.
class Arena {
 public:
  struct Piece {
    std::shared_ptr<Memory> memory;
    uint8_t* data;
  };
  Piece take(size_t bytes);

 private:
  std::shared_ptr<Memory> slab_;
  size_t used_ = 0;
};

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
