// What kernels/gemm_blocks.h needs besides dot.h: how many rows stay in registers, and how their products are added up.
#pragma once
#include "dot.h"

namespace sf {

inline constexpr int kWordRows = 8, kLineRows = 6;           // by 32 outputs, in registers
inline constexpr int64_t kWordLines = 64, kByteLines = 256;  // of a chunk: 16 KB of words, 32 KB of bytes

// sum += words times a row's pair of words. Each sum stays in its register: gcc 12 would copy it from one to another.
using RowWords = Ints;
inline RowWords load_words_of(const uint8_t* p) { return loadi(reinterpret_cast<const int32_t*>(p)); }
[[gnu::always_inline]] inline void add_product(Ints& sum, RowWords words, Ints pair) {
  __m512i next = dot_pairs(sum, words, pair).v;
  __asm__("" : "+v"(next));
  sum.v = next;
}

// Sums that go on: nothing to do. Where a sum is an addition of its own, the compiler must not add up in another order.
inline void keep(Ints (&)[2]) {}

inline void store_ready(void* p, Line l) { store_line(p, {ready(l).v}); }
inline Ready load_ready(const void* p) { return {load_line(p).v}; }

}  // namespace sf
