// Integer dot products of four bytes on sixteen lanes; names and meaning as in portable/attention_dot.h.
#pragma once
#include "lanes.h"

namespace sf::attention {

inline constexpr int32_t kKeyBias = 0;

// Key bytes are within -127 to 127, so |k| * (q with k's sign) summed in pairs fits in 16 bits.
struct KeyLine {
  __m512i size;
  __mmask64 negative;
};
struct QueryQuad {
  __m512i v;
};
// Tokens 0 and 2 of each quad, and tokens 1 and 3, widened to 16 bits: an unsigned byte times a signed one, twice,
// would not fit.
struct ValueLine {
  __m512i even, odd;
};
struct WeightQuad {
  __m512i even, odd;
};

inline __m512i broadcast_word(const void* p) {
  int32_t word;
  std::memcpy(&word, p, 4);
  return _mm512_set1_epi32(word);
}

inline KeyLine load_key_line(const uint8_t* p) {
  const __m512i k = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(-128));
  return {_mm512_abs_epi8(k), _mm512_movepi8_mask(k)};
}
inline QueryQuad load_query_quad(const int8_t* p) { return {broadcast_word(p)}; }
inline ValueLine load_value_line(const uint8_t* p) {
  const __m512i v = _mm512_loadu_si512(p);
  return {_mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8), _mm512_srai_epi16(v, 8)};
}
inline WeightQuad load_weight_quad(const uint8_t* p) {
  const __m512i quad = broadcast_word(p);
  return {_mm512_and_si512(quad, _mm512_set1_epi16(0xFF)), _mm512_srli_epi16(quad, 8)};
}

inline Ints dot(Ints sum, const KeyLine& k, const QueryQuad& q) {
  const __m512i with_sign = _mm512_mask_sub_epi8(q.v, k.negative, _mm512_setzero_si512(), q.v);
  const __m512i pairs = _mm512_maddubs_epi16(k.size, with_sign);
  return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
}
inline Ints dot(Ints sum, const ValueLine& v, const WeightQuad& w) {
  return {
      _mm512_add_epi32(sum.v, _mm512_add_epi32(_mm512_madd_epi16(v.even, w.even), _mm512_madd_epi16(v.odd, w.odd)))};
}
// Into the second-level cache: a segment ahead is more than the first holds.
[[gnu::always_inline]] inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace sf::attention
