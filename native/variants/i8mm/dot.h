// Lines of 64 weights as on NEON; usdot besides, which multiplies unsigned bytes by signed ones. Names and meaning are
// those of portable/dot.h.
#pragma once
#include "../neon/lines.h"

namespace sf {

inline constexpr int kCodeRows = kRowBlock;
using CodeSums = Ints;
inline CodeSums no_codes() { return set1i(0); }
inline CodeSums dot_codes(const CodeSums& sum, const Line& codes, int32_t four) {
  const auto one = [a = spread(four)](int32x4_t s, int8x16_t x) { return vusdotq_s32(s, vreinterpretq_u8_s8(x), a); };
  return by_register<Ints>(one, sum, codes);
}
// Whole bytes, lower + 16 * upper: what is too much is subtracted once, from the sums.
inline Line upper_codes(const Line& both) { return both; }
inline void code_sums(const CodeSums& lower, const CodeSums& both, Ints (&sums)[2]) {
  sums[0] = lower;
  sums[1] = sar<4>(subi(both, lower));
}

}  // namespace sf
