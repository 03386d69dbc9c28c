// One code path; compiled once per instruction set, which OUTRIDER_PATH names.
// Everything is in an unnamed namespace: no symbol compiled for a wide instruction set may be
// picked by the linker for code that runs on any machine.
#include "paths/path.h"

#if OUTRIDER_PATH != 0
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include <cstring>

namespace outrider {
namespace {

#if OUTRIDER_PATH == 2
#include "paths/simd/avx512.h"
#elif OUTRIDER_PATH == 1
#include "paths/simd/avx2.h"
#else
#include "paths/simd/portable.h"
#endif

#include "pointwise.h"
#include "product.h"
#include "keys.h"
#include "attention.h"
#include "sampling.h"

}  // namespace

#if OUTRIDER_PATH == 2
#define OUTRIDER_NAME "avx512vnni"
const Path* path_avx512vnni() {
#elif OUTRIDER_PATH == 1
#define OUTRIDER_NAME "avx2"
const Path* path_avx2() {
#else
#define OUTRIDER_NAME "portable"
const Path* path_portable() {
#endif
  static const Path path{OUTRIDER_NAME, {key_ops<Int8Keys>(), key_ops<Bf16Keys>(), key_ops<F32Keys>()},
                         norm, quantize, product, gated, swiglu, rotate, merge, finish, best, gumbel, embed};
  return &path;
}

}  // namespace outrider
