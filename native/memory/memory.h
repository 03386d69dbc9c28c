// Memory of weights and of cached keys and values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

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

}  // namespace outrider
