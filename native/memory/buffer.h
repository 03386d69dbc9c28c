// Scratch memory of an operator, kept from call to call.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace outrider {

// Grows and never shrinks. Memory is zero when it comes and contents do not survive growing, so what a
// call reads it must have written itself after its last reserve.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // At least `count` objects, on a cache line of their own.
  template <class T>
  T* reserve(size_t count) {
    const size_t bytes = (count * sizeof(T) + 127) / 64 * 64;
    if (bytes > bytes_) {
      std::free(data_);
      bytes_ = 0;
      data_ = std::aligned_alloc(64, bytes);
      if (!data_) throw std::bad_alloc();
      bytes_ = bytes;
      std::memset(data_, 0, bytes);
    }
    return static_cast<T*>(data_);
  }

  // What was reserved; null if nothing ever was.
  template <class T>
  T* data() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace outrider
