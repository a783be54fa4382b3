// 4-bit codes of two limbs whose table only counts (table[code] = code + t), for the tiles: the weight is
// code * M + (Z + t * M), without a look-up, and its limbs are plainly value >> 7 and value & 127. WideSource's low limb lies
// around zero instead; two-limb rows have exact sums, to which all splits are the same.
#pragma once
#include "kernels/sources.h"

namespace sf {

struct CountedSource : Grouped {
  static constexpr int kLimbs = 2;
  using Grouped::Grouped;

  struct Parameters {
    __m512i scale, offset;  // twice for every output: its even and its odd columns lie in the halves of its 32 bits
  };
  Parameters load_parameters(const uint8_t* half) const {
    const __m512i scale = twice(half), first = _mm512_mullo_epi16(scale, _mm512_set1_epi16(static_cast<int16_t>(first_entry)));
    return {scale, with_offsets ? _mm512_add_epi16(first, twice(half + 32)) : first};
  }
};

inline __m512i weights(__m512i codes, const CountedSource::Parameters& p) {
  return _mm512_add_epi16(_mm512_mullo_epi16(codes, p.scale), p.offset);
}

inline void store_limbs(__m512i even, __m512i odd, uint8_t* high, uint8_t* low) {
  const __m512i odd_bytes = _mm512_set1_epi16(static_cast<int16_t>(0xFF00));
  constexpr int kPick = 0xCA;  // first ? second : third
  _mm512_store_si512(high, _mm512_ternarylogic_epi32(odd_bytes, _mm512_slli_epi16(odd, 1), _mm512_srli_epi16(even, 7), kPick));
  const __m512i both = _mm512_ternarylogic_epi32(odd_bytes, _mm512_slli_epi16(odd, 8), even, kPick);
  _mm512_store_si512(low, _mm512_and_si512(both, _mm512_set1_epi8(127)));
}

inline void write_planes(const CountedSource& source, int64_t begin, int64_t first, int64_t last, uint8_t* planes) {
  constexpr int64_t kPlane = kTileLines * kLine;
  const __m512i nibble = _mm512_set1_epi16(15);
  source.spans(first, last, [&](int64_t start, int64_t length, int64_t at) {
    const auto lower = source.load_parameters(source.parameters + at), upper = source.load_parameters(source.parameters + at + source.half_bytes);
    uint8_t* out = planes + (start - begin) / kTileLines * (4 * kPlane) + (start - begin) % kTileLines * kLine;
    for (int64_t line = start; line < start + length; ++line, out += kLine) {
      const __m512i c = _mm512_loadu_si512(source.nibbles(line));
      const __m512i even0 = _mm512_and_si512(c, nibble), odd0 = _mm512_and_si512(_mm512_srli_epi16(c, 8), nibble);
      const __m512i even1 = _mm512_and_si512(_mm512_srli_epi16(c, 4), nibble), odd1 = _mm512_srli_epi16(c, 12);
      store_limbs(weights(even0, lower), weights(odd0, lower), out, out + 2 * kPlane);
      store_limbs(weights(even1, upper), weights(odd1, upper), out + kPlane, out + 3 * kPlane);
    }
  });
}

}  // namespace sf
