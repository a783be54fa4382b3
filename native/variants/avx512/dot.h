// Products of lines of weights by VNNI: vpdpbusd multiplies unsigned by signed bytes, so weights go in with 128 added.
// Names and meaning are those of portable/dot.h.
#pragma once
#include "lines.h"

namespace sf {

struct Ready {
  __m512i v;
};
inline Ready ready(Line l) { return {_mm512_xor_si512(l.v, _mm512_set1_epi8(-128))}; }
inline Ints dot4(Ints sum, Ready w, int32_t four) { return {_mm512_dpbusd_epi32(sum.v, w.v, _mm512_set1_epi32(four))}; }

// 128 times the sum of the activations: what the 128 added to every weight brings in.
inline constexpr int kReadyBias = 128;
inline int32_t ready_excess(const int8_t* x, int64_t count) {
  __m512i sum = _mm512_setzero_si512();
  for (int64_t k = 0; k < count; k += 64)
    sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(-128), _mm512_loadu_si512(x + k));
  return _mm512_reduce_add_epi32(sum);
}

inline constexpr int kCodeRows = 12;  // more are as quick from unpacked weights
using CodeSums = Ints;
inline CodeSums no_codes() { return set1i(0); }
inline CodeSums dot_codes(CodeSums sum, Line codes, int32_t four) {
  return {_mm512_dpbusd_epi32(sum.v, codes.v, _mm512_set1_epi32(four))};
}
// Whole bytes, lower + 16 * upper: what is too much is subtracted once, from the sums.
inline Line upper_codes(Line both) { return both; }
inline void code_sums(CodeSums lower, CodeSums both, Ints (&sums)[2]) {
  sums[0] = lower;
  sums[1] = sar<4>(subi(both, lower));
}

inline Ints dot_pairs(Ints sum, Ints a, Ints b) { return {_mm512_dpwssd_epi32(sum.v, a.v, b.v)}; }

}  // namespace sf
