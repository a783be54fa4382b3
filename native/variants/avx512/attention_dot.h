// Integer dot products of four bytes on sixteen lanes; names and meaning as in portable/attention_dot.h.
#pragma once
#include "lanes.h"

namespace sf::attention {

inline constexpr int32_t kKeyBias = 128;

struct KeyLine {
  __m512i v;
};
struct QueryQuad {
  __m512i v;
};
struct ValueLine {
  __m512i v;
};
struct WeightQuad {
  __m512i v;
};

inline __m512i broadcast_word(const void* p) {
  int32_t word;
  std::memcpy(&word, p, 4);
  return _mm512_set1_epi32(word);
}

inline KeyLine load_key_line(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline QueryQuad load_query_quad(const int8_t* p) { return {broadcast_word(p)}; }
inline ValueLine load_value_line(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
inline WeightQuad load_weight_quad(const uint8_t* p) { return {broadcast_word(p)}; }
inline Ints dot(Ints sum, const KeyLine& k, const QueryQuad& q) { return {_mm512_dpbusd_epi32(sum.v, k.v, q.v)}; }
inline Ints dot(Ints sum, const ValueLine& v, const WeightQuad& w) { return {_mm512_dpbusd_epi32(sum.v, w.v, v.v)}; }
// Into the second-level cache: a segment ahead is more than the first holds.
[[gnu::always_inline]] inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace sf::attention
