// Lines of 64 weights: what dot.h of sdot and of smmla share. Names and meaning are those of portable/dot.h.
#pragma once
#include "lanes.h"

namespace sf {

struct Line {
  int8x16_t v[4];
};
using Ready = Line;
struct Table {
  int8x16_t v;
};
// Each output's byte over its four columns.
struct Narrow {
  Line scale, offset;
};
// Each output's word twice.
struct Wide {
  int16x8_t scale[4], offset[4];
};

inline constexpr int kRowBlock = 1;
inline constexpr int kPanelBlock = 1;

inline Line load_line(const void* p) {
  const auto* q = static_cast<const int8_t*>(p);
  return {{vld1q_s8(q), vld1q_s8(q + 16), vld1q_s8(q + 32), vld1q_s8(q + 48)}};
}
inline void store_line(void* p, const Line& l) {
  for (int i = 0; i < 4; ++i) vst1q_s8(static_cast<int8_t*>(p) + 16 * i, l.v[i]);
}
inline Ready ready(const Line& l) { return l; }

inline int8x16_t spread(int32_t four) { return vreinterpretq_s8_s32(vdupq_n_s32(four)); }
inline Ints dot4(const Ints& sum, const Ready& w, int32_t four) {
  return by_register<Ints>([a = spread(four)](auto s, auto x) { return vdotq_s32(s, x, a); }, sum, w);
}

inline constexpr int kReadyBias = 0;
inline int32_t ready_excess(const int8_t*, int64_t) { return 0; }

inline Table load_table(const uint8_t* p) { return {vreinterpretq_s8_u8(vld1q_u8(p))}; }
inline Line low_nibbles(const Line& l) {
  return by_register<Line>([](auto x) { return vandq_s8(x, vdupq_n_s8(15)); }, l);
}
inline Line high_nibbles(const Line& l) {
  return by_register<Line>([](auto x) { return vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(x), 4)); }, l);
}
inline Line look_up(const Table& t, const Line& codes) {
  return by_register<Line>([&](auto x) { return vqtbl1q_s8(t.v, vreinterpretq_u8_s8(x)); }, codes);
}

// 16 bytes, each over the four columns of its output.
inline Line over_columns(const uint8_t* sixteen) {
  static constexpr uint8_t kFirst[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(sixteen));
  const uint8x16_t first = vld1q_u8(kFirst);
  const auto quad = [&](uint8_t i) { return vqtbl1q_s8(bytes, vaddq_u8(first, vdupq_n_u8(4 * i))); };
  return {{quad(0), quad(1), quad(2), quad(3)}};
}
inline Narrow load_narrow(const uint8_t* half) { return {over_columns(half), over_columns(half + 16)}; }
inline Line expand(const Line& values, const Narrow& p) {
  return by_register<Line>([](auto x, auto scale, auto offset) { return vmlaq_s8(offset, x, scale); }, values, p.scale,
                           p.offset);
}

inline void load_twice(const uint8_t* sixteen_words, int16x8_t (&to)[4]) {
  for (int i = 0; i < 2; ++i) {
    const int16x8_t words = vreinterpretq_s16_u8(vld1q_u8(sixteen_words + 16 * i));
    to[2 * i] = vzip1q_s16(words, words);
    to[2 * i + 1] = vzip2q_s16(words, words);
  }
}
inline Wide load_wide(const uint8_t* half, bool with_offsets) {
  Wide p;
  load_twice(half, p.scale);
  for (int16x8_t& offset : p.offset) offset = vdupq_n_s16(0);
  if (with_offsets) load_twice(half + 32, p.offset);
  return p;
}
// value * 256 in each 16 bits: the rounding multiplication (2 a * b + 2^15) >> 16 is then (value * scale + 64) >> 7.
template <int Bits>
inline int16x8_t weights(int16x8_t value, int16x8_t scale, int16x8_t offset) {
  return Bits == 4 ? vmlaq_s16(offset, vshrq_n_s16(value, 8), scale) : vaddq_s16(vqrdmulhq_s16(value, scale), offset);
}
template <int Bits>
inline void register_words(int8x16_t values, const Wide& p, int i, int16x8_t& even, int16x8_t& odd) {
  const int16x8_t pairs = vreinterpretq_s16_s8(values), high = vdupq_n_s16(static_cast<int16_t>(0xFF00));
  even = weights<Bits>(vshlq_n_s16(pairs, 8), p.scale[i], p.offset[i]);
  odd = weights<Bits>(vandq_s16(pairs, high), p.scale[i], p.offset[i]);
}
template <int Bits>
inline void expand(const Line& values, const Wide& p, Line& high, Line& low) {
  for (int i = 0; i < 4; ++i) {
    int16x8_t even, odd;
    register_words<Bits>(values.v[i], p, i, even, odd);
    high.v[i] = vreinterpretq_s8_s16(vsliq_n_s16(vrshrq_n_s16(even, 7), vrshrq_n_s16(odd, 7), 8));
    // The low limb is the low seven bits, as a signed number.
    const int8x16_t bytes = vreinterpretq_s8_s16(vsliq_n_s16(even, odd, 8));
    low.v[i] = vshrq_n_s8(vshlq_n_s8(bytes, 1), 1);
  }
}

inline Wide for_words(const Wide& p) { return p; }
template <int Bits, bool WithOffsets = true>
inline void words(const Line& values, const Wide& p, Ints& even, Ints& odd) {
  for (int i = 0; i < 4; ++i) {
    int16x8_t e, o;
    register_words<Bits>(values.v[i], p, i, e, o);
    even.v[i] = vreinterpretq_s32_s16(e), odd.v[i] = vreinterpretq_s32_s16(o);
  }
}

inline Ints pair_up(const Ints& sum, int32_t extra) {
  const int32x4_t e = vdupq_n_s32(extra);
  const auto pair = [=](int32x4_t x) {
    const int16x8_t added = vaddq_s16(vreinterpretq_s16_s32(x), vreinterpretq_s16_s32(e));
    return vbslq_s32(vdupq_n_u32(0xFFFF), vreinterpretq_s32_s16(added), e);
  };
  return by_register<Ints>(pair, sum);
}
inline int32x4_t dot_pairs(int32x4_t sum, int16x8_t a, int16x8_t b) {
  return vaddq_s32(sum, vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b)));
}
inline Ints dot_pairs(const Ints& sum, const Ints& a, const Ints& b) {
  const auto one = [](int32x4_t s, int32x4_t x, int32x4_t y) {
    return dot_pairs(s, vreinterpretq_s16_s32(x), vreinterpretq_s16_s32(y));
  };
  return by_register<Ints>(one, sum, a, b);
}
inline void store_words(uint8_t* sixteen, const Ints& a) {
  for (int i = 0; i < 2; ++i) vst1q_u8(sixteen + 16 * i, vreinterpretq_u8_s16(low_words(a.v[2 * i], a.v[2 * i + 1])));
}
inline Ints load_words(const uint8_t* sixteen) {
  Ints r;
  for (int i = 0; i < 4; ++i) r.v[i] = vmovl_s16(vreinterpret_s16_u8(vld1_u8(sixteen + 8 * i)));
  return r;
}
// low in the low half of each 32 bits, high in the high half
inline Ints join_words(const Ints& low, const Ints& high) {
  return by_register<Ints>([](auto x, auto y) { return vsliq_n_s32(x, y, 16); }, low, high);
}
inline Ints load_pairs(const uint8_t* half, bool with_offsets, int middle) {
  const Ints scale = load_words(half), offset = with_offsets ? load_words(half + 32) : set1i(0);
  return join_words(scale, addi(offset, muli(scale, set1i(middle))));
}
inline Ints load_narrow_pairs(const uint8_t* half, int middle) {
  const uint8x16_t scales = vld1q_u8(half);
  const int8x16_t offsets = vreinterpretq_s8_u8(vld1q_u8(half + 16));
  const uint16x8_t scale[2] = {vmovl_u8(vget_low_u8(scales)), vmovl_high_u8(scales)};
  const int16x8_t offset[2] = {vmovl_s8(vget_low_s8(offsets)), vmovl_high_s8(offsets)};
  Ints m, z;
  for (int i = 0; i < 2; ++i) {
    m.v[2 * i] = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(scale[i])));
    m.v[2 * i + 1] = vreinterpretq_s32_u32(vmovl_high_u16(scale[i]));
    z.v[2 * i] = vmovl_s16(vget_low_s16(offset[i]));
    z.v[2 * i + 1] = vmovl_high_s16(offset[i]);
  }
  return join_words(m, addi(z, muli(m, set1i(middle))));
}
template <int Span>
inline Ints add_spans(const int8_t* p) {
  const Line l = load_line(p);
  int32_t sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = vaddvq_s32(vdotq_s32(vdupq_n_s32(0), l.v[i], vdupq_n_s8(1)));
  Ints r;
  for (int i = 0; i < 4; ++i) r.v[i] = vdupq_n_s32(Span == 8 ? sums[i / 2 * 2] + sums[i / 2 * 2 + 1] : sums[i]);
  return r;
}

}  // namespace sf
