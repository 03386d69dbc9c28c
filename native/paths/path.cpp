// One code path. CMakeLists.txt compiles this file once per instruction set: OUTRIDER_PATH is the
// path's name and OUTRIDER_SIMD its header of lanes.
//
// All that the headers here define is in an unnamed namespace: no symbol compiled for a wide
// instruction set may be picked by the linker for code that runs on any machine.
#include "paths/path.h"

#include "paths/attention.h"
#include "paths/keys.h"
#include "paths/pointwise.h"
#include "paths/product.h"
#include "paths/sampling.h"

#define OUTRIDER_QUOTE_(text) #text
#define OUTRIDER_QUOTE(text) OUTRIDER_QUOTE_(text)
#define OUTRIDER_JOIN_(a, b) a##b
#define OUTRIDER_JOIN(a, b) OUTRIDER_JOIN_(a, b)

namespace outrider {

const Path* OUTRIDER_JOIN(path_, OUTRIDER_PATH)() {
  static const Path path{OUTRIDER_QUOTE(OUTRIDER_PATH),
                         {key_ops<Int8Keys>(), key_ops<Bf16Keys>(), key_ops<F32Keys>()},
                         norm, quantize, product, gated, swiglu, rotate, merge, finish, best, gumbel, embed};
  return &path;
}

}  // namespace outrider
