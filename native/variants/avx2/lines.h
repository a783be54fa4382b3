// Lines of 64 weights in two registers: what dot.h of AVX2 and of AVX-VNNI share, all but the products. Names and
// meaning are those of portable/dot.h.
#pragma once
#include "lanes.h"

namespace sf {

struct Line {
  __m256i lo, hi;  // outputs 0 to 7, 8 to 15
};
struct Table {
  __m256i v;
};
struct Narrow {
  Line scale, offset;
};
struct Wide {
  Line scale, offset;  // the offset with 64 added
};

inline constexpr int kRowBlock = 1;
inline constexpr int kPanelBlock = 1;

inline Line load_line(const void* p) {
  const auto* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline void store_line(void* p, const Line& l) {
  auto* q = static_cast<__m256i*>(p);
  _mm256_storeu_si256(q, l.lo);
  _mm256_storeu_si256(q + 1, l.hi);
}
inline Table load_table(const uint8_t* p) {
  return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline Line low_nibbles(const Line& l) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(l.lo, mask), _mm256_and_si256(l.hi, mask)};
}
inline Line high_nibbles(const Line& l) {
  return low_nibbles({_mm256_srli_epi16(l.lo, 4), _mm256_srli_epi16(l.hi, 4)});
}
inline Line look_up(const Table& t, const Line& codes) {
  return {_mm256_shuffle_epi8(t.v, codes.lo), _mm256_shuffle_epi8(t.v, codes.hi)};
}

// A 128-bit lane holds 4 outputs: lane i of the line (0 to 3) picks 4 of 16 bytes and spreads them over its 16.
inline Line spread(const uint8_t* sixteen, int32_t first, int32_t step) {
  const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(sixteen)));
  const __m256i steps = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(step));
  const __m256i lo = _mm256_add_epi32(steps, _mm256_set1_epi32(first));
  return {_mm256_shuffle_epi8(bytes, lo),
          _mm256_shuffle_epi8(bytes, _mm256_add_epi32(lo, _mm256_set1_epi32(8 * step)))};
}
inline Narrow load_narrow(const uint8_t* half) {
  return {spread(half, static_cast<int32_t>(0x80008000), 0x00010001), spread(half + 16, 0, 0x01010101)};
}
inline Line expand(const Line& values, const Narrow& p) {
  return {_mm256_add_epi8(_mm256_mullo_epi16(values.lo, p.scale.lo), p.offset.lo),
          _mm256_add_epi8(_mm256_mullo_epi16(values.hi, p.scale.hi), p.offset.hi)};
}

// 8 words to 8 outputs, each in both halves of its 32 bits.
inline __m256i twice(const uint8_t* eight_words) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(eight_words)));
  return _mm256_or_si256(wide, _mm256_slli_epi32(wide, 16));
}
inline Wide load_wide(const uint8_t* half, bool with_offsets) {
  const __m256i sixty_four = _mm256_set1_epi16(64);
  Wide p{{twice(half), twice(half + 16)}, {sixty_four, sixty_four}};
  if (with_offsets)
    p.offset = {_mm256_add_epi16(twice(half + 32), sixty_four), _mm256_add_epi16(twice(half + 48), sixty_four)};
  return p;
}
// value * 256 in each 16 bits: the rounding multiplication (a * b + 2^14) >> 15 is then (value * scale + 64) >> 7.
template <int Bits>
inline __m256i product(__m256i value, __m256i scale) {
  return Bits == 4 ? _mm256_mullo_epi16(_mm256_srai_epi16(value, 8), scale) : _mm256_mulhrs_epi16(value, scale);
}
template <int Bits>
inline void expand_half(__m256i values, __m256i scale, __m256i offset, __m256i& high, __m256i& low) {
  const __m256i odd_bytes = _mm256_set1_epi16(static_cast<int16_t>(0xFF00));
  const __m256i even = _mm256_add_epi16(product<Bits>(_mm256_slli_epi16(values, 8), scale), offset);
  const __m256i odd = _mm256_add_epi16(product<Bits>(_mm256_and_si256(values, odd_bytes), scale), offset);
  high = _mm256_blendv_epi8(_mm256_srli_epi16(even, 7), _mm256_slli_epi16(odd, 1), odd_bytes);
  const __m256i both = _mm256_blendv_epi8(even, _mm256_slli_epi16(odd, 8), odd_bytes);
  low = _mm256_sub_epi8(_mm256_and_si256(both, _mm256_set1_epi8(127)), _mm256_set1_epi8(64));
}
template <int Bits>
inline void expand(const Line& values, const Wide& p, Line& high, Line& low) {
  expand_half<Bits>(values.lo, p.scale.lo, p.offset.lo, high.lo, low.lo);
  expand_half<Bits>(values.hi, p.scale.hi, p.offset.hi, high.hi, low.hi);
}

inline Wide for_words(const Wide& p) {
  const __m256i sixty_four = _mm256_set1_epi16(64);
  return {p.scale, {_mm256_sub_epi16(p.offset.lo, sixty_four), _mm256_sub_epi16(p.offset.hi, sixty_four)}};
}
template <int Bits, bool WithOffsets>
inline void words_half(__m256i values, __m256i scale, __m256i offset, __m256i& even, __m256i& odd) {
  even = product<Bits>(_mm256_slli_epi16(values, 8), scale);
  odd = product<Bits>(_mm256_and_si256(values, _mm256_set1_epi16(static_cast<int16_t>(0xFF00))), scale);
  if constexpr (WithOffsets) even = _mm256_add_epi16(even, offset), odd = _mm256_add_epi16(odd, offset);
}
template <int Bits, bool WithOffsets = true>
inline void words(const Line& values, const Wide& p, Ints& even, Ints& odd) {
  words_half<Bits, WithOffsets>(values.lo, p.scale.lo, p.offset.lo, even.lo, odd.lo);
  words_half<Bits, WithOffsets>(values.hi, p.scale.hi, p.offset.hi, even.hi, odd.hi);
}

inline Ints pair_up(Ints sum, int32_t extra) {
  const __m256i e = _mm256_set1_epi32(extra);
  return {_mm256_blend_epi16(_mm256_add_epi16(sum.lo, e), e, 0xAA),
          _mm256_blend_epi16(_mm256_add_epi16(sum.hi, e), e, 0xAA)};
}
inline Ints load_pairs(const uint8_t* half, bool with_offsets, int middle) {
  const __m256i factor = _mm256_set1_epi32(1 | middle * 65536), zeros = _mm256_setzero_si256();
  Ints p{_mm256_mullo_epi16(twice(half), factor), _mm256_mullo_epi16(twice(half + 16), factor)};
  if (with_offsets) {
    p.lo = _mm256_add_epi16(p.lo, _mm256_blend_epi16(zeros, twice(half + 32), 0xAA));
    p.hi = _mm256_add_epi16(p.hi, _mm256_blend_epi16(zeros, twice(half + 48), 0xAA));
  }
  return p;
}
// 8 bytes of scales and of offsets to 8 outputs.
inline __m256i narrow_pairs(const uint8_t* scales, const uint8_t* offsets, int middle) {
  const __m256i scale = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales)));
  const __m256i offset = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(offsets)));
  const __m256i twice = _mm256_or_si256(scale, _mm256_slli_epi32(scale, 16));
  return _mm256_add_epi16(_mm256_mullo_epi16(twice, _mm256_set1_epi32(1 | middle * 65536)),
                          _mm256_slli_epi32(offset, 16));
}
inline Ints load_narrow_pairs(const uint8_t* half, int middle) {
  return {narrow_pairs(half, half + 16, middle), narrow_pairs(half + 8, half + 24, middle)};
}
inline Ints add_words(const Line& l) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(l.lo, ones), _mm256_madd_epi16(l.hi, ones)};
}
template <int Span>
inline __m256i add_spans_half(__m256i v) {
  v = _mm256_add_epi32(v, _mm256_shuffle_epi32(v, 0xB1));
  v = _mm256_add_epi32(v, _mm256_shuffle_epi32(v, 0x4E));
  return Span == 8 ? _mm256_add_epi32(v, _mm256_permute2x128_si256(v, v, 1)) : v;
}
template <int Span>
inline Ints add_spans(const int8_t* p) {
  const __m256i ones = _mm256_set1_epi8(1);
  const Line l = load_line(p);
  const Ints fours = add_words({_mm256_maddubs_epi16(ones, l.lo), _mm256_maddubs_epi16(ones, l.hi)});
  return {add_spans_half<Span>(fours.lo), add_spans_half<Span>(fours.hi)};
}
inline void store_words(uint8_t* sixteen, const Ints& a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xD8);  // packs within 128-bit halves
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sixteen), words);
}
inline Ints load_words(const uint8_t* sixteen) {
  const auto* p = reinterpret_cast<const __m128i*>(sixteen);
  return {_mm256_cvtepi16_epi32(_mm_loadu_si128(p)), _mm256_cvtepi16_epi32(_mm_loadu_si128(p + 1))};
}

// For gemm_kernels.h.
inline Wide count_from(int entry, const Wide& p) {
  const __m256i first = _mm256_set1_epi16(static_cast<int16_t>(entry));
  return {p.scale,
          {_mm256_add_epi16(p.offset.lo, _mm256_mullo_epi16(p.scale.lo, first)),
           _mm256_add_epi16(p.offset.hi, _mm256_mullo_epi16(p.scale.hi, first))}};
}
inline Ints word_products(const Ints& codes, const Wide& p) {
  return {_mm256_add_epi16(_mm256_mullo_epi16(codes.lo, p.scale.lo), p.offset.lo),
          _mm256_add_epi16(_mm256_mullo_epi16(codes.hi, p.scale.hi), p.offset.hi)};
}

}  // namespace sf
