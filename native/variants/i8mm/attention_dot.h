// Integer dot products of four bytes on sixteen lanes; names and meaning as in portable/attention_dot.h. usdot takes
// keys as they lie in memory, and weights.
#pragma once
#include "lanes.h"

namespace sf::attention {

inline constexpr int32_t kKeyBias = 128;

struct KeyLine {
  uint8x16_t v[4];
};
struct QueryQuad {
  int8x16_t v;
};
struct ValueLine {
  int8x16_t v[4];
};
struct WeightQuad {
  uint8x16_t v;
};

inline uint8x16_t broadcast_word(const void* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return vreinterpretq_u8_u32(vdupq_n_u32(word));
}

inline KeyLine load_key_line(const uint8_t* p) {
  return {{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}};
}
inline QueryQuad load_query_quad(const int8_t* p) { return {vreinterpretq_s8_u8(broadcast_word(p))}; }
inline ValueLine load_value_line(const uint8_t* p) {
  const auto* q = reinterpret_cast<const int8_t*>(p);
  return {{vld1q_s8(q), vld1q_s8(q + 16), vld1q_s8(q + 32), vld1q_s8(q + 48)}};
}
inline WeightQuad load_weight_quad(const uint8_t* p) { return {broadcast_word(p)}; }

inline Ints dot(const Ints& sum, const KeyLine& k, const QueryQuad& q) {
  return by_register<Ints>([&](auto s, auto x) { return vusdotq_s32(s, x, q.v); }, sum, k);
}
inline Ints dot(const Ints& sum, const ValueLine& v, const WeightQuad& w) {
  return by_register<Ints>([&](auto s, auto x) { return vusdotq_s32(s, w.v, x); }, sum, v);
}
// Into the second-level cache: a segment ahead is more than the first holds.
[[gnu::always_inline]] inline void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace sf::attention
