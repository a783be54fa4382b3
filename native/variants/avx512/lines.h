// Lines of 64 weights in one register: what dot.h of AVX-512 with and without VNNI share, all but the products. Names
// and meaning are those of portable/dot.h.
#pragma once
#include "lanes.h"

namespace sf {

struct Line {
  __m512i v;
};
struct Table {
  __m512i v;
};
// Scales stand in both 16-bit halves of an output's 32 bits.
struct Narrow {
  __m512i scale, offset;
};
struct Wide {
  __m512i scale, offset;  // the offset with 64 added, ready to be split into limbs
};

inline constexpr int kRowBlock = 4;
inline constexpr int kPanelBlock = 2;

inline Line load_line(const void* p) { return {_mm512_loadu_si512(p)}; }
inline void store_line(void* p, Line l) { _mm512_storeu_si512(p, l.v); }
inline Table load_table(const uint8_t* p) {
  return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline Line low_nibbles(Line l) { return {_mm512_and_si512(l.v, _mm512_set1_epi8(15))}; }
inline Line high_nibbles(Line l) { return {_mm512_and_si512(_mm512_srli_epi16(l.v, 4), _mm512_set1_epi8(15))}; }
inline Line look_up(Table t, Line codes) { return {_mm512_shuffle_epi8(t.v, codes.v)}; }

// Each 128-bit lane holds 4 outputs: lane i picks bytes 4i to 4i + 3 and spreads them over its 16.
inline __m512i spread(const uint8_t* sixteen, __m512i pattern) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sixteen));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), pattern);
}
inline __m512i lane_pattern(int32_t first, int32_t step) {
  int32_t p[16];
  for (int i = 0; i < 16; ++i) p[i] = first + step * i;
  return _mm512_loadu_si512(p);
}
inline Narrow load_narrow(const uint8_t* half) {
  // 0x80 in a pattern byte gives zero: the scale stands in the low byte of each 16 bits.
  const __m512i scales = lane_pattern(static_cast<int32_t>(0x80008000), 0x00010001);
  const __m512i offsets = lane_pattern(0, 0x01010101);
  return {spread(half, scales), spread(half + 16, offsets)};
}
// Two bytes at a time: neither product exceeds 255, so the low one never carries into the high one.
inline Line expand(Line values, Narrow p) { return {_mm512_add_epi8(_mm512_mullo_epi16(values.v, p.scale), p.offset)}; }

inline __m512i twice(const uint8_t* sixteen_words) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sixteen_words));
  const __m512i index = lane_pattern(0, 0x00010001);
  return _mm512_permutexvar_epi16(index, _mm512_castsi256_si512(words));
}
inline Wide load_wide(const uint8_t* half, bool with_offsets) {
  const __m512i sixty_four = _mm512_set1_epi16(64);
  return {twice(half), with_offsets ? _mm512_add_epi16(twice(half + 32), sixty_four) : sixty_four};
}
// value * 256 in each 16 bits: the rounding multiplication (a * b + 2^14) >> 15 is then (value * scale + 64) >> 7.
template <int Bits>
inline __m512i product(__m512i value, __m512i scale) {
  return Bits == 4 ? _mm512_mullo_epi16(_mm512_srai_epi16(value, 8), scale) : _mm512_mulhrs_epi16(value, scale);
}
template <int Bits>
inline void expand(Line values, Wide p, Line& high, Line& low) {
  const __m512i odd_bytes = _mm512_set1_epi16(static_cast<int16_t>(0xFF00));
  const __m512i even = _mm512_add_epi16(product<Bits>(_mm512_slli_epi16(values.v, 8), p.scale), p.offset);
  const __m512i odd = _mm512_add_epi16(product<Bits>(_mm512_and_si512(values.v, odd_bytes), p.scale), p.offset);
  constexpr int kPick = 0xCA;  // first ? second : third
  high.v = _mm512_ternarylogic_epi32(odd_bytes, _mm512_slli_epi16(odd, 1), _mm512_srli_epi16(even, 7), kPick);
  const __m512i both = _mm512_ternarylogic_epi32(odd_bytes, _mm512_slli_epi16(odd, 8), even, kPick);
  low.v = _mm512_sub_epi8(_mm512_and_si512(both, _mm512_set1_epi8(127)), _mm512_set1_epi8(64));
}

inline Wide for_words(const Wide& p) { return {p.scale, _mm512_sub_epi16(p.offset, _mm512_set1_epi16(64))}; }
template <int Bits, bool WithOffsets = true>
inline void words(Line values, const Wide& p, Ints& even, Ints& odd) {
  const __m512i odd_bytes = _mm512_set1_epi16(static_cast<int16_t>(0xFF00));
  even.v = product<Bits>(_mm512_slli_epi16(values.v, 8), p.scale);
  odd.v = product<Bits>(_mm512_and_si512(values.v, odd_bytes), p.scale);
  if constexpr (WithOffsets) even.v = _mm512_add_epi16(even.v, p.offset), odd.v = _mm512_add_epi16(odd.v, p.offset);
}

inline Ints pair_up(Ints sum, int32_t extra) {
  const __m512i e = _mm512_set1_epi32(extra);
  return {_mm512_mask_add_epi16(e, 0x55555555, sum.v, e)};
}
inline Ints load_pairs(const uint8_t* half, bool with_offsets, int middle) {
  const __m512i pairs = _mm512_mullo_epi16(twice(half), _mm512_set1_epi32(1 | middle * 65536));
  return {with_offsets ? _mm512_mask_add_epi16(pairs, 0xAAAAAAAA, pairs, twice(half + 32)) : pairs};
}
inline Ints load_narrow_pairs(const uint8_t* half, int middle) {
  const __m512i scales = spread(half, lane_pattern(static_cast<int32_t>(0x80008000), 0x00010001));
  const __m512i offsets = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(half + 16)));
  return {_mm512_add_epi16(_mm512_mullo_epi16(scales, _mm512_set1_epi32(1 | middle * 65536)),
                           _mm512_slli_epi32(offsets, 16))};
}
template <int Span>
inline Ints add_spans(const int8_t* p) {
  const __m512i pairs = _mm512_maddubs_epi16(_mm512_set1_epi8(1), _mm512_loadu_si512(p));
  __m512i v = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
  v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, _MM_PERM_CDAB));
  v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, _MM_PERM_BADC));
  return {Span == 8 ? _mm512_add_epi32(v, _mm512_shuffle_i32x4(v, v, _MM_PERM_CDAB)) : v};
}
inline void store_words(uint8_t* sixteen, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sixteen), _mm512_cvtepi32_epi16(a.v));
}
inline Ints load_words(const uint8_t* sixteen) {
  return {_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sixteen)))};
}

// For gemm_kernels.h. What a code is multiplied by and what is added, where a linear table begins with this entry.
inline Wide count_from(int entry, const Wide& p) {
  const __m512i first = _mm512_set1_epi16(static_cast<int16_t>(entry));
  return {p.scale, _mm512_add_epi16(p.offset, _mm512_mullo_epi16(p.scale, first))};
}
// Weights, of codes as 16-bit words.
inline Ints word_products(Ints codes, const Wide& p) {
  return {_mm512_add_epi16(_mm512_mullo_epi16(codes.v, p.scale), p.offset)};
}

}  // namespace sf
