// What kernels/row_blocks.h needs besides dot.h. Names and meaning are those of avx512/row_kernels.h.
#pragma once
#include "dot.h"

namespace sf {

// Eight of the 16 registers hold one row's sums of 32 outputs and two limbs.
inline constexpr int kCodeRows = 1, kWordRows = 1, kLineRows = 1;

inline constexpr int64_t kFewCodeRows = 2;

// Sums of codes lie in 16 bits, two to an output, and meet the same multiplier; they need no middle.
inline constexpr bool kOffsetsFirst = true;
inline constexpr int kCodeMiddle = 0;
inline Ints code_multipliers(const Ints& pairs) { return addi(andi(pairs, set1i(0xFFFF)), shl<16>(pairs)); }
inline int32_t code_extra(int32_t) { return 0; }
inline Ints add_codes(const Ints& sum, const CodeSums& codes, const int32_t*, const Ints& multipliers) {
  return dot_pairs(sum, {codes.lo, codes.hi}, multipliers);
}

inline Ints times_pairs(const Ints& a, const Ints& b) {
  return {_mm256_madd_epi16(a.lo, b.lo), _mm256_madd_epi16(a.hi, b.hi)};
}
inline Ints add_high_words(const Ints& sum, const Ints& a) { return addi(sum, sar<16>(a)); }

// gcc would add up the products of several lines as a tree, for which there are no registers.
template <class T>
inline void keep(T (&sums)[2]) {
  __asm__("" : "+x"(sums[0].lo), "+x"(sums[0].hi), "+x"(sums[1].lo), "+x"(sums[1].hi));
}

// Stored as they are: size and sign take two instructions.
inline void store_ready(void* p, const Line& l) { store_line(p, l); }
inline Ready load_ready(const void* p) { return ready(load_line(p)); }

}  // namespace sf
