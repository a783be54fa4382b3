// Lines of 64 weights (16 outputs by 4 columns) and what the integer matmul does with them, in plain C++.
// Other variants offer the same names. kernels/pack.h describes lines and group parameters.
#pragma once
#include "lanes.h"

namespace sf {

struct Line {
  int8_t v[64];
};
// A line in the form that multiplies fastest.
using Ready = Line;
struct Table {
  uint8_t v[16];
};
// One group's parameters for the 16 outputs of a half.
struct Narrow {
  uint8_t scale[16], offset[16];
};
struct Wide {
  int16_t scale[16], offset[16];
};

inline constexpr int kRowBlock = 1;    // rows multiplied at once from registers
inline constexpr int kPanelBlock = 1;  // panels whose lines are read in turn, for one or two rows

inline Line load_line(const void* p) {
  Line l;
  std::memcpy(l.v, p, 64);
  return l;
}
inline void store_line(void* p, const Line& l) { std::memcpy(p, l.v, 64); }
inline Ready ready(const Line& l) { return l; }

// sum[output] += w[output][0..3] . a[0..3]
inline Ints dot4(Ints sum, const Ready& w, int32_t four) {
  int8_t a[4];
  std::memcpy(a, &four, 4);
  for (int i = 0; i < 16; ++i)
    sum.v[i] += w.v[4 * i] * a[0] + w.v[4 * i + 1] * a[1] + w.v[4 * i + 2] * a[2] + w.v[4 * i + 3] * a[3];
  return sum;
}

// What ready weights are too large by, and what the sums of dot4 are when these activations (a multiple of 64) met
// them.
inline constexpr int kReadyBias = 0;
inline int32_t ready_excess(const int8_t*, int64_t) { return 0; }

inline Table load_table(const uint8_t* p) {
  Table t;
  std::memcpy(t.v, p, 16);
  return t;
}
inline Line low_nibbles(const Line& l) {
  Line r;
  for (int i = 0; i < 64; ++i) r.v[i] = l.v[i] & 15;
  return r;
}
inline Line high_nibbles(const Line& l) {
  Line r;
  for (int i = 0; i < 64; ++i) r.v[i] = uint8_t(l.v[i]) >> 4;
  return r;
}
inline Line look_up(const Table& t, const Line& codes) {
  Line r;
  for (int i = 0; i < 64; ++i) r.v[i] = static_cast<int8_t>(t.v[uint8_t(codes.v[i])]);
  return r;
}

inline Narrow load_narrow(const uint8_t* half) {
  Narrow p;
  std::memcpy(&p, half, 32);
  return p;
}
inline Line expand(const Line& values, const Narrow& p) {
  Line r;
  for (int i = 0; i < 64; ++i) r.v[i] = static_cast<int8_t>(uint8_t(values.v[i]) * p.scale[i / 4] + p.offset[i / 4]);
  return r;
}

inline Wide load_wide(const uint8_t* half, bool with_offsets) {
  Wide p{};
  std::memcpy(p.scale, half, 32);
  if (with_offsets) std::memcpy(p.offset, half + 32, 32);
  return p;
}
// Bits of the code decide how a product becomes a weight: see kernels/pack.h.
template <int Bits>
inline void expand(const Line& values, const Wide& p, Line& high, Line& low) {
  for (int i = 0; i < 64; ++i) {
    const int product = values.v[i] * p.scale[i / 4], w = (Bits == 4 ? product : (product + 64) >> 7) + p.offset[i / 4];
    const int h = (w + 64) >> 7;
    high.v[i] = static_cast<int8_t>(h);
    low.v[i] = static_cast<int8_t>(w - 128 * h);
  }
}

// ---- codes multiplied as they are: see kernels/gemv_codes.h ----

// load_wide's, for words instead of limbs.
inline Wide for_words(const Wide& p) { return p; }
// Weights as pairs of int16 in 32 bits: an output's columns 0 and 2, and its columns 1 and 3. Where there are no
// offsets they need not be added.
template <int Bits, bool WithOffsets = true>
inline void words(const Line& values, const Wide& p, Ints& even, Ints& odd) {
  const auto weight = [&](int i) {
    const int product = values.v[i] * p.scale[i / 4];
    return (Bits == 4 ? product : (product + 64) >> 7) + p.offset[i / 4];
  };
  const auto pair = [](int low, int high) { return int32_t(uint32_t(uint16_t(low)) | uint32_t(high) << 16); };
  for (int i = 0; i < 16; ++i) {
    even.v[i] = pair(weight(4 * i), weight(4 * i + 2));
    odd.v[i] = pair(weight(4 * i + 1), weight(4 * i + 3));
  }
}

// Sums of codes times activations, over eight lines at most.
inline constexpr int kCodeRows = kRowBlock;  // rows whose sums of codes stay in registers
using CodeSums = Ints;
inline CodeSums no_codes() { return set1i(0); }
inline CodeSums dot_codes(CodeSums sum, const Line& codes, int32_t four) { return dot4(sum, codes, four); }
// What stands for half 1 in a line of both halves' codes; and both halves' sums from what lower and upper codes gave.
inline Line upper_codes(const Line& both) { return high_nibbles(both); }
inline void code_sums(const CodeSums& lower, const CodeSums& upper, Ints (&sums)[2]) {
  sums[0] = lower, sums[1] = upper;
}

// Pairs of int16 in 32 bits. extra's low half is added to the sum, which then fits 16 bits; its high half goes above.
inline Ints pair_up(Ints sum, int32_t extra) {
  for (int i = 0; i < 16; ++i)
    sum.v[i] = int32_t(uint32_t(uint16_t(sum.v[i] + extra)) | (uint32_t(extra) & 0xFFFF0000u));
  return sum;
}
// sum + a.low * b.low + a.high * b.high
inline Ints dot_pairs(Ints sum, const Ints& a, const Ints& b) {
  for (int i = 0; i < 16; ++i) sum.v[i] += int16_t(a.v[i]) * int16_t(b.v[i]) + (a.v[i] >> 16) * (b.v[i] >> 16);
  return sum;
}
// Pairs (multiplier, offset + middle * multiplier) of 16 outputs.
inline Ints load_pairs(const uint8_t* half, bool with_offsets, int middle) {
  const Wide p = load_wide(half, with_offsets);
  Ints r;
  for (int i = 0; i < 16; ++i)
    r.v[i] = int32_t(uint32_t(uint16_t(p.scale[i])) | uint32_t(p.offset[i] + middle * p.scale[i]) << 16);
  return r;
}
inline Ints load_narrow_pairs(const uint8_t* half, int middle) {
  const Narrow p = load_narrow(half);
  Ints r;
  for (int i = 0; i < 16; ++i)
    r.v[i] = int32_t(p.scale[i] | uint32_t(static_cast<int8_t>(p.offset[i]) + middle * p.scale[i]) << 16);
  return r;
}
// 64 bytes, four to a lane: each lane is the sum over its Span neighbours.
template <int Span>
inline Ints add_spans(const int8_t* p) {
  Ints r;
  for (int first = 0; first < 16; first += Span) {
    int32_t sum = 0;
    for (int i = 4 * first; i < 4 * (first + Span); ++i) sum += p[i];
    for (int i = first; i < first + Span; ++i) r.v[i] = sum;
  }
  return r;
}
// Each lane's low word.
inline void store_words(uint8_t* sixteen, const Ints& a) {
  int16_t words[16];
  for (int i = 0; i < 16; ++i) words[i] = static_cast<int16_t>(a.v[i]);
  std::memcpy(sixteen, words, 32);
}
inline Ints load_words(const uint8_t* sixteen) {
  int16_t words[16];
  std::memcpy(words, sixteen, 32);
  Ints r;
  for (int i = 0; i < 16; ++i) r.v[i] = words[i];
  return r;
}

}  // namespace sf
