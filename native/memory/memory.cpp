#include "memory/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace outrider {

#ifdef OUTRIDER_SANITIZE
// Exactly as many bytes as asked for, from an allocator that notices reads past them.
constexpr bool SLABS = false;

Memory::Memory(size_t bytes) : bytes_((bytes + 63) / 64 * 64) {
  data_ = static_cast<uint8_t*>(std::aligned_alloc(64, bytes_ ? bytes_ : 64));
  if (!data_) throw std::bad_alloc();
  std::memset(data_, 0, bytes_);
}

Memory::~Memory() { std::free(data_); }
#else
constexpr bool SLABS = true;
constexpr size_t HUGE_PAGE = size_t{2} << 20;

Memory::Memory(size_t bytes) : bytes_((bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE) {
  if (bytes_ == 0) bytes_ = HUGE_PAGE;
  // One huge page more, of which what lies outside the aligned range is given back.
  void* p = mmap(nullptr, bytes_ + HUGE_PAGE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  const size_t before = (HUGE_PAGE - reinterpret_cast<uintptr_t>(p) % HUGE_PAGE) % HUGE_PAGE;
  uint8_t* start = static_cast<uint8_t*>(p);
  data_ = start + before;
  if (before) munmap(start, before);
  if (before < HUGE_PAGE) munmap(data_ + bytes_, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
  if (bytes >= HUGE_PAGE) madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
}

Memory::~Memory() { munmap(data_, bytes_); }
#endif

Arena::Piece Arena::take(size_t bytes) {
  constexpr size_t SLAB = size_t{16} << 20;
  const size_t size = (bytes + 63) / 64 * 64;
  if (!SLABS || size > SLAB / 4) {
    auto own = std::make_shared<Memory>(size);
    return {own, own->data()};
  }
  if (!slab_ || used_ + size > slab_->bytes()) {
    slab_ = std::make_shared<Memory>(SLAB);
    used_ = 0;
  }
  used_ += size;
  return {slab_, slab_->data() + (used_ - size)};
}

}  // namespace outrider
