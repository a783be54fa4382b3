// Products of lines of weights by 256-bit VNNI: vpdpbusd multiplies unsigned by signed bytes, so weights go in with 128
// added. Names and meaning are those of portable/dot.h.
#pragma once
#include "../avx2/lines.h"

namespace sf {

inline Ints dot_bytes(const Ints& sum, const Line& bytes, int32_t four) {
  const __m256i fours = _mm256_set1_epi32(four);
  return {_mm256_dpbusd_avx_epi32(sum.lo, bytes.lo, fours), _mm256_dpbusd_avx_epi32(sum.hi, bytes.hi, fours)};
}

struct Ready {
  Line v;
};
inline Ready ready(const Line& l) {
  const __m256i bias = _mm256_set1_epi8(-128);
  return {{_mm256_xor_si256(l.lo, bias), _mm256_xor_si256(l.hi, bias)}};
}
inline Ints dot4(const Ints& sum, const Ready& w, int32_t four) { return dot_bytes(sum, w.v, four); }

// 128 times the sum of the activations: what the 128 added to every weight brings in.
inline constexpr int kReadyBias = 128;
inline int32_t ready_excess(const int8_t* x, int64_t count) {
  int32_t sum = 0;
  for (int64_t k = 0; k < count; ++k) sum += x[k];
  return kReadyBias * sum;
}

inline constexpr int kCodeRows = kRowBlock;
using CodeSums = Ints;
inline CodeSums no_codes() { return set1i(0); }
inline CodeSums dot_codes(const CodeSums& sum, const Line& codes, int32_t four) { return dot_bytes(sum, codes, four); }
// Whole bytes, lower + 16 * upper: what is too much is subtracted once, from the sums.
inline Line upper_codes(const Line& both) { return both; }
inline void code_sums(const CodeSums& lower, const CodeSums& both, Ints (&sums)[2]) {
  sums[0] = lower;
  sums[1] = sar<4>(subi(both, lower));
}

inline Ints dot_pairs(const Ints& sum, const Ints& a, const Ints& b) {
  return {_mm256_dpwssd_avx_epi32(sum.lo, a.lo, b.lo), _mm256_dpwssd_avx_epi32(sum.hi, a.hi, b.hi)};
}

}  // namespace sf
