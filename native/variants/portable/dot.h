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

inline constexpr int kRowBlock = 1;               // rows multiplied at once from registers
inline constexpr int kPanelBlock = 1;  // panels whose lines are read in turn, for one or two rows

inline Line load_line(const void* p) { Line l; std::memcpy(l.v, p, 64); return l; }
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

// What the sums of dot4 come out too large by when these activations (a multiple of 64) met ready weights.
inline int32_t ready_excess(const int8_t*, int64_t) { return 0; }

inline Table load_table(const uint8_t* p) { Table t; std::memcpy(t.v, p, 16); return t; }
inline Line low_nibbles(const Line& l) { Line r; for (int i = 0; i < 64; ++i) r.v[i] = l.v[i] & 15; return r; }
inline Line high_nibbles(const Line& l) { Line r; for (int i = 0; i < 64; ++i) r.v[i] = uint8_t(l.v[i]) >> 4; return r; }
inline Line look_up(const Table& t, const Line& codes) {
  Line r;
  for (int i = 0; i < 64; ++i) r.v[i] = static_cast<int8_t>(t.v[uint8_t(codes.v[i])]);
  return r;
}

inline Narrow load_narrow(const uint8_t* half) { Narrow p; std::memcpy(&p, half, 32); return p; }
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
inline void expand(const Line& values, const Wide& p, Line& high, Line& low) {
  for (int i = 0; i < 64; ++i) {
    const int w = ((values.v[i] * p.scale[i / 4] + 64) >> 7) + p.offset[i / 4];
    const int h = (w + 64) >> 7;
    high.v[i] = static_cast<int8_t>(h);
    low.v[i] = static_cast<int8_t>(w - 128 * h);
  }
}

}  // namespace sf
