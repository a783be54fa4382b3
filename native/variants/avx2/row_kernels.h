// What kernels/row_blocks.h needs besides dot.h. Names and meaning are those of avx512/row_kernels.h.
#pragma once
#include "dot.h"

namespace sf {

// Eight of the 16 registers hold one row's sums of 32 outputs and two limbs.
inline constexpr int kCodeRows = 1, kWordRows = 1, kLineRows = 1;
inline constexpr bool kHoldsTotals = false;
inline constexpr int64_t kChunkLines = 128;  // of 4 columns: 16 KB of unpacked codes, in L1

inline constexpr int64_t kFewCodeRows = 2;

// Sums of codes lie in 16 bits, two to an output, and meet the same multiplier; they need no middle.
inline constexpr bool kOffsetsFirst = true;
inline constexpr int kCodeMiddle = 0;
inline Ints code_multipliers(const Ints& pairs) { return addi(andi(pairs, set1i(0xFFFF)), shl<16>(pairs)); }
inline int32_t code_extra(int32_t) { return 0; }
inline Ints add_codes(const Ints& sum, const CodeSums& codes, const int32_t*, const Ints& multipliers) {
  return dot_pairs(sum, {codes.lo, codes.hi}, multipliers);
}

// vpmaddubsw takes its unsigned bytes from a register and its signed ones from memory: rows are biased, so that codes
// need no loads of their own. 255 * 15 * 2 does not saturate, and the sums of words may wrap.
inline constexpr bool kBiasedRows = true;
struct RowCodes {
  const __m256i* at;
};
inline RowCodes load_codes(const uint8_t* p) { return {reinterpret_cast<const __m256i*>(p)}; }
inline CodeSums start_codes(const uint8_t* p) { return load_line(p); }
inline void store_start(uint8_t* p, const CodeSums& start) { store_line(p, start); }
inline CodeSums subtract_bias(const CodeSums& sum, const Line& codes) {
  const __m256i bias = _mm256_set1_epi8(-128);
  return {_mm256_add_epi16(sum.lo, _mm256_maddubs_epi16(codes.lo, bias)),
          _mm256_add_epi16(sum.hi, _mm256_maddubs_epi16(codes.hi, bias))};
}
inline CodeSums dot_row(const CodeSums& sum, RowCodes codes, int32_t four) {
  const __m256i x = _mm256_set1_epi32(four);
  const CodeSums sums{_mm256_add_epi16(sum.lo, _mm256_maddubs_epi16(x, _mm256_load_si256(codes.at))),
                      _mm256_add_epi16(sum.hi, _mm256_maddubs_epi16(x, _mm256_load_si256(codes.at + 1)))};
  // The other limb loads the codes again: gcc would spend an instruction on keeping them.
  __asm__ volatile("" ::: "memory");
  return sums;
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
