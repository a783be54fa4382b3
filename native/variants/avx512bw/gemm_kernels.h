// What kernels/gemm_blocks.h needs besides dot.h. Names and meaning are those of avx512/gemm_kernels.h.
#pragma once
#include "dot.h"

namespace sf {

inline constexpr int kWordRows = 4, kLineRows = 4;
inline constexpr int64_t kWordLines = 64, kByteLines = 256;

using RowWords = Ints;
inline RowWords load_words_of(const uint8_t* p) { return loadi(reinterpret_cast<const int32_t*>(p)); }
inline void add_product(Ints& sum, RowWords words, Ints pair) { sum = dot_pairs(sum, words, pair); }

// gcc would add up the products of several lines as a tree.
inline void keep(Ints (&sums)[2]) { __asm__("" : "+v"(sums[0].v), "+v"(sums[1].v)); }

// Stored as they are: size and sign take two instructions.
inline void store_ready(void* p, Line l) { store_line(p, l); }
inline Ready load_ready(const void* p) { return ready(load_line(p)); }

}  // namespace sf
