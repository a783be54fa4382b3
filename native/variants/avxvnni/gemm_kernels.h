// What kernels/gemm_blocks.h needs besides dot.h. Names and meaning are those of avx512/gemm_kernels.h.
#pragma once
#include "dot.h"

namespace sf {

inline constexpr int kWordRows = 2, kLineRows = 1;
inline constexpr int64_t kWordLines = 64, kByteLines = 128;

using RowWords = Ints;
inline RowWords load_words_of(const uint8_t* p) { return loadi(reinterpret_cast<const int32_t*>(p)); }
inline void add_product(Ints& sum, const RowWords& words, const Ints& pair) { sum = dot_pairs(sum, words, pair); }

inline void keep(Ints (&)[2]) {}

inline void store_ready(void* p, const Line& l) { store_line(p, ready(l).v); }
inline Ready load_ready(const void* p) { return {load_line(p)}; }

}  // namespace sf
