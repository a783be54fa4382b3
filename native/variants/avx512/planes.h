// Lines of codes of 5 and 6 bits, made in registers. Names and meaning are those of defaults/planes.h.
#pragma once
#include <array>

#include "lines.h"

namespace sf {

inline constexpr bool kReadsPlanes = true;

// What a nibble of the high plane adds to the code of the line whose bits begin at bit First.
template <int High, int Stretch, int First>
inline constexpr std::array<uint8_t, 16> kAddedByHigh = [] {
  std::array<uint8_t, 16> added{};
  for (int nibble = 0; nibble < 16; ++nibble) {
    const int bits = nibble >> First & ((1 << High) - 1);
    added[nibble] = static_cast<uint8_t>(16 * Stretch * (bits - High));
  }
  return added;
}();
template <int Stretch>
inline constexpr std::array<uint8_t, 16> kStretchedNibbles = [] {
  std::array<uint8_t, 16> codes{};
  for (int nibble = 0; nibble < 16; ++nibble) codes[nibble] = static_cast<uint8_t>(Stretch * nibble);
  return codes;
}();

template <int High, int Stretch, int I>
[[gnu::always_inline]] inline void plane_codes(const uint8_t* low, const uint8_t* high, Line (&codes)[2]) {
  constexpr int kEach = 4 / High;
  const Table by_high = load_table(kAddedByHigh<High, Stretch, I % kEach * High>.data());
  const Line nibbles = load_line(low + I * 64), plane = load_line(high + I / kEach * 64);
  const Line added[2] = {look_up(by_high, low_nibbles(plane)), look_up(by_high, high_nibbles(plane))};
  if constexpr (Stretch == 5) {
    const Table by_low = load_table(kStretchedNibbles<Stretch>.data());
    codes[0].v = _mm512_add_epi8(look_up(by_low, low_nibbles(nibbles)).v, added[0].v);
    codes[1].v = _mm512_add_epi8(look_up(by_low, high_nibbles(nibbles)).v, added[1].v);
  } else {  // a power of two
    constexpr int kShift = Stretch / 2, kFirstAndSecondOrThird = 0xEA;
    const __m512i mask = _mm512_set1_epi8(15 << kShift);
    codes[0].v =
        _mm512_ternarylogic_epi32(_mm512_slli_epi16(nibbles.v, kShift), mask, added[0].v, kFirstAndSecondOrThird);
    codes[1].v =
        _mm512_ternarylogic_epi32(_mm512_srli_epi16(nibbles.v, 4 - kShift), mask, added[1].v, kFirstAndSecondOrThird);
  }
}

}  // namespace sf
