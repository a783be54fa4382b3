// Expands linear 4-bit codes (table[code] = code + t) of two limbs for AMX tiles, without a look-up: the weight is
// code * M + (Z + t * M). Its limbs are value >> 7 and value & 127. WideSource's low limb is centred on zero instead;
// both splits give the same exact sums. Twice the value is computed: its upper byte is the high limb, and half its
// lower byte is the low limb.
#pragma once
#include "kernels/sources.h"

namespace sf {

struct LinearCodesSource : Grouped {
  static constexpr int kLimbs = 2;
  using Grouped::Grouped;

  // Doubled parameters. Each output's are there twice: its even and its odd columns are the halves of its 32 bits.
  struct Half {
    __m512i scale, offset;
  };
  struct Group {
    Half half[2];
  };
  Group group(int64_t line) const {
    enter(line);
    return {{load_half(parameters_of(line, 0)), load_half(parameters_of(line, 1))}};
  }
  Half load_half(const uint8_t* at) const {
    const __m512i scale = twice(at),
                  first = _mm512_mullo_epi16(scale, _mm512_set1_epi16(static_cast<int16_t>(first_entry)));
    const __m512i offset = with_offsets ? _mm512_add_epi16(first, twice(at + 32)) : first;
    return {_mm512_slli_epi16(scale, 1), _mm512_slli_epi16(offset, 1)};
  }

  void weights(int64_t line, const Group& group, Line (&w)[2][2]) const {
    half_weights<0>(line, group, w[0]);
    half_weights<1>(line, group, w[1]);
  }
  template <int Half>
  void half_weights(int64_t line, const Group& group, Line (&w)[2]) const {
    const __m512i nibble = _mm512_set1_epi16(15),
                  c = _mm512_loadu_si512(Half == 0 ? nibbles(line) : codes + line * kLine);
    if constexpr (Half == 0)
      split(_mm512_and_si512(c, nibble), _mm512_and_si512(_mm512_srli_epi16(c, 8), nibble), group.half[0], w);
    else split(_mm512_and_si512(_mm512_srli_epi16(c, 4), nibble), _mm512_srli_epi16(c, 12), group.half[1], w);
  }
  static __m512i times(__m512i codes, const Half& p) {
    return _mm512_add_epi16(_mm512_mullo_epi16(codes, p.scale), p.offset);
  }
  static void split(__m512i even_codes, __m512i odd_codes, const Half& p, Line (&w)[2]) {
    const __m512i even = times(even_codes, p), odd = times(odd_codes, p);
    constexpr __mmask64 kOdd = 0xAAAAAAAAAAAAAAAA;
    w[0].v = _mm512_mask_blend_epi8(kOdd, _mm512_srli_epi16(even, 8), odd);
    w[1].v = _mm512_srli_epi16(_mm512_mask_blend_epi8(kOdd, even, _mm512_slli_epi16(odd, 8)), 1);
  }
};

}  // namespace sf
