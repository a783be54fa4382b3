// Products of lines of weights by AVX-512 without VNNI (Skylake). vpmaddubsw takes |w| and the activation with w's
// sign: |w| <= 127 and |a| <= 127 keep the pair sums within 16 bits, so nothing saturates. Names and meaning are those
// of portable/dot.h.
#pragma once
#include "../avx512/lines.h"

namespace sf {

struct Ready {
  __m512i size;
  __mmask64 negative;
};
inline Ready ready(Line l) { return {_mm512_abs_epi8(l.v), _mm512_movepi8_mask(l.v)}; }
inline __m512i add_pairs(__m512i words) { return _mm512_madd_epi16(words, _mm512_set1_epi16(1)); }
inline Ints dot4(Ints sum, const Ready& w, int32_t four) {
  const __m512i fours = _mm512_set1_epi32(four);
  const __m512i with_sign = _mm512_mask_sub_epi8(fours, w.negative, _mm512_setzero_si512(), fours);
  return {_mm512_add_epi32(sum.v, add_pairs(_mm512_maddubs_epi16(w.size, with_sign)))};
}

inline constexpr int kReadyBias = 0;
inline int32_t ready_excess(const int8_t*, int64_t) { return 0; }

// Kept in 16 bits, two per output: 8 lines of 2 products of 15 * 127 at most.
inline constexpr int kCodeRows = kRowBlock;
using CodeSums = Line;
inline CodeSums no_codes() { return {_mm512_setzero_si512()}; }
// In assembly: gcc 12 would add up the products of several lines as a tree, and spill them.
inline CodeSums dot_codes(CodeSums sum, Line codes, int32_t four) {
  __m512i product;
  __asm__("vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0"
          : "+v"(sum.v), "=&v"(product)
          : "v"(_mm512_set1_epi32(four)), "v"(codes.v));
  return sum;
}
inline Line upper_codes(Line both) { return high_nibbles(both); }
inline void code_sums(CodeSums lower, CodeSums upper, Ints (&sums)[2]) {
  sums[0].v = add_pairs(lower.v);
  sums[1].v = add_pairs(upper.v);
}

inline Ints dot_pairs(Ints sum, Ints a, Ints b) {
  __m512i product;
  __asm__("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0" : "+v"(sum.v), "=&v"(product) : "vm"(b.v), "v"(a.v));
  return sum;
}

}  // namespace sf
