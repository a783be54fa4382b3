// Integer dot products of four bytes on sixteen lanes; names and meaning as in portable/attention_dot.h.
#pragma once
#include "lanes.h"

namespace sf::attention {

inline constexpr int32_t kKeyBias = 0;

struct KeyLine {
  int8x16_t v[4];
};
struct QueryQuad {
  int8x16_t v;
};
// sdot takes no unsigned bytes: values lie here with 128 added, to be multiplied by udot, and a quad of weights holds
// -128 times its sum to make up for it.
struct ValueLine {
  uint8x16_t v[4];
};
struct WeightQuad {
  uint8x16_t v;
  int32x4_t excess;
};

inline uint8x16_t load_flipped(const uint8_t* p) { return veorq_u8(vld1q_u8(p), vdupq_n_u8(0x80)); }
inline uint8x16_t broadcast_word(const void* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return vreinterpretq_u8_u32(vdupq_n_u32(word));
}

inline KeyLine load_key_line(const uint8_t* p) {
  const auto load = [=](int i) { return vreinterpretq_s8_u8(load_flipped(p + 16 * i)); };
  return {{load(0), load(1), load(2), load(3)}};
}
inline QueryQuad load_query_quad(const int8_t* p) { return {vreinterpretq_s8_u8(broadcast_word(p))}; }
inline ValueLine load_value_line(const uint8_t* p) {
  return {{load_flipped(p), load_flipped(p + 16), load_flipped(p + 32), load_flipped(p + 48)}};
}
inline WeightQuad load_weight_quad(const uint8_t* p) {
  const uint8x16_t w = broadcast_word(p);
  const uint32x4_t sum = vdotq_u32(vdupq_n_u32(0), w, vdupq_n_u8(128));
  return {w, vnegq_s32(vreinterpretq_s32_u32(sum))};
}

inline Ints dot(const Ints& sum, const KeyLine& k, const QueryQuad& q) {
  return by_register<Ints>([&](auto s, auto x) { return vdotq_s32(s, x, q.v); }, sum, k);
}
inline Ints dot(const Ints& sum, const ValueLine& v, const WeightQuad& w) {
  const auto one = [&](int32x4_t s, uint8x16_t x) {
    return vreinterpretq_s32_u32(vdotq_u32(vreinterpretq_u32_s32(vaddq_s32(s, w.excess)), x, w.v));
  };
  return by_register<Ints>(one, sum, v);
}
// Into the second-level cache: a segment ahead is more than the first holds.
[[gnu::always_inline]] inline void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace sf::attention
