// Sixteen lanes: the contract that a code path's header fulfils, and that header.
//
// CMakeLists.txt names the header in OUTRIDER_SIMD. It defines what is listed here, inline and in
// outrider's unnamed namespace, and nothing else of a path depends on its instruction set.
//
// A result is a function of the lanes given and of nothing else. Paths may differ from one another in
// the last bits of floats where this says so; one path may not differ from itself.
//
// Types
//   F  16 float32         I  16 int32, which wrap around
//   M  16 truth values    W  64 bytes, of which lane j has 4 j .. 4 j + 3
//
// Memory, at any address
//   F load(const float*)       store(float*, F)         I load_int(const int32_t*)
//   store_int(int32_t*, I)     W load_bytes(const uint8_t*)
//   F load_part(p, count), store_part(p, F, count)
//       the first `count` lanes, all of them from 16 on; count is at least 1. Other lanes are loaded as
//       0, and memory past them is neither read nor written.
//   F from_half(const uint16_t*)             16 half-precision numbers, exactly; NaN stays NaN
//   F even_bf16(const uint16_t*), odd_bf16   the first, the second of 16 pairs of bfloat16, exactly
//   to_int8(int8_t*, I)                      16 bytes, saturated
//   split_bytes(I, uint8_t* high, uint8_t* low)
//       16 bytes each, of integers from 0 to 65,535
//
// Lanes
//   splat(float), splat(int32_t)   I lanes()   0 .. 15
//   M between(int low, int high)   lanes low .. high - 1, of any two numbers
//   pick(M, x, y)                  x where the mask holds, else y; of F and of I
//   either(M, M), both(M, M), bool any(M)
//   I bits(F)                      the same bits
//
// Floats. add, sub, mul, div are rounded once, to nearest. fma(x, y, z), x y + z, is rounded once or, in
// every place alike, twice.
//   larger(x, y), smaller(x, y)    y if either is NaN
//   less(x, y), at_most(x, y)      false if either is NaN
//   F to_float(I)                  nearest
//   I to_int(F)                    nearest, ties to even, up to 2^22 in magnitude; any number of NaN
//   F scale2(F, I n)               x 2^n, although 2^n itself may be out of range
//   float sum_lanes(F)             in one order, the path's own
//   float max_lanes(F)             of numbers and infinities
//
// Integers
//   add, sub, larger, bit_xor, less, int32_t sum_lanes(I), int32_t max_lanes(I)
//   clear_sign(x)                  x & 0x7fffffff
//   shift_left7, shift_left8; shift_right7 keeps the sign, shift_right9 brings in zeros
//   multiply(I x, uint32_t m, I& low, I& high)
//       both words of the unsigned products
//
// Dots. Exact, however the instructions group them: lane j gains the sum of its four products.
//   W low_half(W), high_half(W)    of every byte, as bytes
//   I dot4(I, W w, int32_t x)      w unsigned and below 32, x four signed bytes of at least -127
//   I dot8(I, W w, x)              x as for dot4, or an I of 16 times the same word. w is unsigned where
//                                  BIASED; else w - 128 is multiplied
//   I dot_signed(I, I x, W w)      x unsigned, 16 times the same word; w signed
//   constexpr bool BIASED          its callers then start from -128 times the sum of x
//
// A header may define OUTRIDER_WIDE_ROWS: products of many rows then go through wide.h, which must give
// the same bits.
#pragma once
#include OUTRIDER_SIMD
