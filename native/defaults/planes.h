// Codes of 5 and 6 bits in planes (kernels/pack.h): whether a variant makes lines of them in registers, instead of
// expanding tiles into a buffer.
#pragma once
#include "dot.h"  // of the variant

namespace sf {

inline constexpr bool kReadsPlanes = false;

// Lines first to first + 3 of both halves begin at `low` and `high`, the planes of 4 and of High bits: the 8-bit codes
// of line first + I, from -16 * Stretch (5 bits) or -32 * Stretch (6 bits) on. Only called where there is one.
template <int High, int Stretch, int I>
void plane_codes(const uint8_t* low, const uint8_t* high, Line (&codes)[2]);

}  // namespace sf
