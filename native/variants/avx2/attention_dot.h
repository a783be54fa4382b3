// Integer dot products of four bytes on sixteen lanes; names and meaning as in portable/attention_dot.h.
#pragma once
#include "lanes.h"

namespace sf::attention {

inline constexpr int32_t kKeyBias = 0;

// Key bytes are within -127 to 127, so |k| * sign(q, k) summed in pairs fits in 16 bits.
struct KeyLine {
  __m256i lo, hi, abs_lo, abs_hi;
};
struct QueryQuad {
  __m256i v;
};
// Tokens 0 and 2 of each quad, and tokens 1 and 3, widened to 16 bits: an unsigned byte times a signed one, twice,
// would not fit.
struct ValueLine {
  __m256i even_lo, even_hi, odd_lo, odd_hi;
};
struct WeightQuad {
  __m256i even, odd;
};

inline __m256i load_256(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline int32_t load_word(const void* p) {
  int32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

inline KeyLine load_key_line(const uint8_t* p) {
  const __m256i bias = _mm256_set1_epi8(-128);
  const __m256i lo = _mm256_xor_si256(load_256(p), bias), hi = _mm256_xor_si256(load_256(p + 32), bias);
  return {lo, hi, _mm256_abs_epi8(lo), _mm256_abs_epi8(hi)};
}
inline QueryQuad load_query_quad(const int8_t* p) { return {_mm256_set1_epi32(load_word(p))}; }
inline __m256i even_bytes(__m256i v) { return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8); }
inline __m256i odd_bytes(__m256i v) { return _mm256_srai_epi16(v, 8); }
inline ValueLine load_value_line(const uint8_t* p) {
  const __m256i lo = load_256(p), hi = load_256(p + 32);
  return {even_bytes(lo), even_bytes(hi), odd_bytes(lo), odd_bytes(hi)};
}
inline WeightQuad load_weight_quad(const uint8_t* p) {
  const __m256i quad = _mm256_set1_epi32(load_word(p));
  return {_mm256_and_si256(quad, _mm256_set1_epi16(0xFF)), _mm256_srli_epi16(quad, 8)};
}

inline __m256i dot_half(__m256i sum, __m256i k, __m256i abs_k, __m256i q) {
  const __m256i pairs = _mm256_maddubs_epi16(abs_k, _mm256_sign_epi8(q, k));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline Ints dot(Ints sum, const KeyLine& k, const QueryQuad& q) {
  return {dot_half(sum.lo, k.lo, k.abs_lo, q.v), dot_half(sum.hi, k.hi, k.abs_hi, q.v)};
}
inline __m256i dot_half(__m256i sum, __m256i even, __m256i odd, const WeightQuad& w) {
  return _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_madd_epi16(even, w.even), _mm256_madd_epi16(odd, w.odd)));
}
inline Ints dot(Ints sum, const ValueLine& v, const WeightQuad& w) {
  return {dot_half(sum.lo, v.even_lo, v.odd_lo, w), dot_half(sum.hi, v.even_hi, v.odd_hi, w)};
}
// Into the second-level cache: a segment ahead is more than the first holds.
[[gnu::always_inline]] inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace sf::attention
