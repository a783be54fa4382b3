// What kernels/gemm_blocks.h needs besides dot.h. Names and meaning are those of avx512/gemm_kernels.h.
#pragma once
#include "dot.h"

namespace sf {

inline constexpr int kWordRows = 1, kLineRows = 1;
inline constexpr int64_t kWordLines = 64, kByteLines = 128;

// Words come straight from memory. In assembly, since gcc 12 copies sums from register to register.
using RowWords = const __m256i*;
inline RowWords load_words_of(const uint8_t* p) { return reinterpret_cast<const __m256i*>(p); }
[[gnu::always_inline]] inline void add_product(__m256i& sum, const __m256i& words, __m256i pair) {
  __m256i product, next = sum;
  __asm__("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0" : "+x"(next), "=&x"(product) : "m"(words), "x"(pair));
  sum = next;
}
[[gnu::always_inline]] inline void add_product(Ints& sum, RowWords words, const Ints& pair) {
  add_product(sum.lo, words[0], pair.lo);
  add_product(sum.hi, words[1], pair.hi);
}

// gcc would add up the products of several lines as a tree, for which there are no registers.
inline void keep(Ints (&sums)[2]) {
  __asm__("" : "+x"(sums[0].lo), "+x"(sums[0].hi), "+x"(sums[1].lo), "+x"(sums[1].hi));
}

// Stored as they are: size and sign take two instructions.
inline void store_ready(void* p, const Line& l) { store_line(p, l); }
inline Ready load_ready(const void* p) { return ready(load_line(p)); }

}  // namespace sf
