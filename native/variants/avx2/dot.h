// Products of lines of weights. vpmaddubsw takes |w| and the activation with w's sign: |w| <= 127 and |a| <= 127 keep
// the pair sums within 16 bits, so nothing saturates. Names and meaning are those of portable/dot.h.
#pragma once
#include "lines.h"

namespace sf {

struct Ready {
  Line size, sign;
};

inline Ready ready(const Line& l) { return {{_mm256_abs_epi8(l.lo), _mm256_abs_epi8(l.hi)}, l}; }
inline __m256i dot4_half(__m256i sum, __m256i size, __m256i sign, __m256i four) {
  const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(four, sign));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline Ints dot4(Ints sum, const Ready& w, int32_t four) {
  const __m256i a = _mm256_set1_epi32(four);
  return {dot4_half(sum.lo, w.size.lo, w.sign.lo, a), dot4_half(sum.hi, w.size.hi, w.sign.hi, a)};
}

inline constexpr int kReadyBias = 0;
inline int32_t ready_excess(const int8_t*, int64_t) { return 0; }

// Kept in 16 bits, two per output: 8 lines of 2 products of 15 * 127 at most.
inline constexpr int kCodeRows = kRowBlock;
using CodeSums = Line;
inline CodeSums no_codes() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
// In assembly: gcc 12 would add up the products of several lines as a tree, and spill them.
inline __m256i dot_codes_half(__m256i sum, __m256i codes, __m256i fours) {
  __m256i product;
  __asm__("vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(fours), "x"(codes));
  return sum;
}
inline CodeSums dot_codes(const CodeSums& sum, const Line& codes, int32_t four) {
  const __m256i fours = _mm256_set1_epi32(four);
  return {dot_codes_half(sum.lo, codes.lo, fours), dot_codes_half(sum.hi, codes.hi, fours)};
}
inline Line upper_codes(const Line& both) { return high_nibbles(both); }
inline void code_sums(const CodeSums& lower, const CodeSums& upper, Ints (&sums)[2]) {
  sums[0] = add_words(lower);
  sums[1] = add_words(upper);
}

inline __m256i dot_pairs_half(__m256i sum, __m256i a, __m256i b) {
  __m256i product;
  __asm__("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "xm"(b), "x"(a));
  return sum;
}
inline Ints dot_pairs(const Ints& sum, const Ints& a, const Ints& b) {
  return {dot_pairs_half(sum.lo, a.lo, b.lo), dot_pairs_half(sum.hi, a.hi, b.hi)};
}

}  // namespace sf
