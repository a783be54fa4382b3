// Lines of 64 weights in four registers, register i holding outputs 4 i to 4 i + 3; sdot multiplies signed bytes.
// Names and meaning are those of portable/dot.h.
#pragma once
#include "lines.h"

namespace sf {

inline constexpr int kCodeRows = kRowBlock;
using CodeSums = Ints;
inline CodeSums no_codes() { return set1i(0); }
inline CodeSums dot_codes(const CodeSums& sum, const Line& codes, int32_t four) { return dot4(sum, codes, four); }
inline Line upper_codes(const Line& both) { return high_nibbles(both); }
inline void code_sums(const CodeSums& lower, const CodeSums& upper, Ints (&sums)[2]) {
  sums[0] = lower, sums[1] = upper;
}

}  // namespace sf
