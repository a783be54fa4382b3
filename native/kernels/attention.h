// Attention of one query row over one segment of 128 tokens, and how segments merge. docs/design/attention.md says why.
//
// Logits are in units of log2 and their reference point `top` is a whole number, so that merging multiplies by powers
// of two. For a query row q (two limbs, scale q_scale) and the visible tokens t of a segment, all in float32:
//   total[t] = 128 hh + mid          int32; keys of two limbs: hh = sum qh kh, mid = sum (qh kl + ql kh);
//                                    of one limb: hh = sum qh k, mid = sum ql k
//   x[t]     = float(total[t]) * key_scale[t]
//   factor   = q_scale * unit        unit = scale * log2(e) * (128 for keys of two limbs)
//   softcap: x[t] = tanh(x[t] * (q_scale * (scale * (128 or 1)) / cap)), factor = cap * log2(e)
//   slopes:  x[t] = fma(|position - t|, -slope * log2(e), x[t] * factor), then factor = 1
//   top      = nearest_even(max x[t] * factor)
//   p[t]     = exp2(fma(x[t], factor, -top)); tokens that are not visible have p = 0
//   sums     = sixteen sums of p, lane t % 16, groups of 16 tokens ascending from 0
//   w[t]     = p[t] * value_scale[t],  w_max = max w[t]
//   P[t]     = nearest_even(w[t] * (65535 / w_max)) = 256 Ph + Pl, both unsigned bytes; all zero if w_max <= 1e-30
//   out      = float(256 sum Ph v + sum Pl v), the sums int32; values of two limbs: fma(out of vh, 128, out of vl)
//   weight   = w_max * (1 / 65535)
// Segments merge in ascending order into (top, sums, out), which begin as (lowest, 0, 0):
//   m = max(top, segment top),  a = 2^(top - m),  b = 2^(segment top - m)   (0 below 2^-126)
//   sums = fma(segment sums, b, sums * a),  out = fma(segment out, weight * b, out * a),  top = m
// In the end l = tree(sums). A sink (a logit without a value): s = sink * log2(e), m = max(top, nearest_even(s)),
// a = 2^(top - m), l = fma(l, a, exp2(s - m)), out = out * a. The result is out / l.
//
// bfloat16: x[t] = strided_dot(q, k[t]), factor = scale * log2(e); softcap: x[t] = tanh(x[t] * (scale / cap)); out =
// sum of p[t] v[t] by fma, t ascending, weight = 1. Slopes as above.
#pragma once
#include <cfloat>
#include <cmath>
#include <cstring>

#include "core/elementary.h"
#include "kernels/kv.h"

namespace sf::attention {

inline constexpr int kSegment = 128;  // tokens, aligned to absolute position
inline constexpr int kSegmentGroups = kSegment / 16;
inline constexpr int kTileRows = 16;  // query rows handled together
inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kProbabilityMax = 65535.0f;

// The groups of a segment in which some row of the tile sees a token are first to last - 1. The other pointers repeat
// one of these, so that reading is safe; what is read there is never used.
struct Segment {
  const uint8_t* group[kSegmentGroups];
  int first, last;
};

// 2^x for x <= 1, relative error below 2.8e-6 (P has 16 bits); below -125 it stays at 2^-125.
inline Lanes exp2_bounded(Lanes x) {
  const Lanes magic = set1(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number in the low bits
  x = max(x, set1(-125.0f));
  const Lanes shifted = add(x, magic);
  const Lanes r = sub(x, sub(shifted, magic));
  Lanes y = set1(0.009570102207362652f);
  y = fma(y, r, set1(0.05591786280274391f));
  y = fma(y, r, set1(0.240247443318367f));
  y = fma(y, r, set1(0.6931217908859253f));
  y = fma(y, r, set1(0.9999992847442627f));
  return as_float(addi(as_int(y), shl<23>(as_int(shifted))));
}

// 2^n for a whole n <= 0.
inline float power_of_two(float n) {
  if (!(n >= -126.0f)) return 0.0f;
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
}

inline float nearest_even(float x) { return std::nearbyintf(x); }

// Lanes from `from` to `to` - 1 of yes (either bound may lie outside 0 to 16), the others of no.
inline Lanes between(int from, int to, Lanes yes, Lanes no) {
  const auto clamp = [](int n) { return n < 0 ? 0 : n > 16 ? 16 : n; };
  return select(first(clamp(from)), no, select(first(clamp(to)), yes, no));
}

// Tokens between the query and each of sixteen, the first of which is `before` tokens before it (negative: behind it).
inline Lanes distances(int64_t before) {
  alignas(64) static constexpr float kAscending[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return abs(sub(set1(static_cast<float>(before)), load(kAscending)));
}

// Which tokens of a segment a row sees: from `from` to `to` - 1.
struct Sight {
  int from, to;
  bool all() const { return to - from == kSegment; }
  bool none() const { return from >= to; }
};

// x becomes p and then scale(at, p), which is w if there are value scales. Returns the sums of p; most gets the largest
// w.
template <bool kMasked, class Scale>
inline Lanes probabilities(float* x, float factor, float top, Sight sight, const Scale& scale, Lanes& most) {
  Lanes sums = zero();
  for (int at = 0; at < kSegment; at += kLanes) {
    Lanes p = exp2_bounded(fma(load(x + at), set1(factor), set1(-top)));
    if (kMasked) p = between(sight.from - at, sight.to - at, p, zero());
    sums = add(sums, p);
    p = scale(at, p);
    // A slot that was never written may hold any scale, NaN included.
    if (kMasked) p = between(sight.from - at, sight.to - at, p, zero());
    most = max(most, p);
    store(x + at, p);
  }
  return sums;
}

// P's high bytes to out[128], its low bytes to out[128] behind them, in store_limbs's order within each half.
inline void quantise_weights(const float* w, float inverse, uint8_t* out) {
  const Lanes inv = set1(inverse);
  for (int half = 0; half < kSegment; half += 64, w += 64)
    store_limbs(out + half, out + kSegment + half, to_int(mul(load(w), inv)), to_int(mul(load(w + 16), inv)),
                to_int(mul(load(w + 32), inv)), to_int(mul(load(w + 48), inv)));
}

// How a segment joins a row: sums and top at once, each out by join_out.
struct Join {
  float old, own;  // what the row's out so far and the segment's out are multiplied by
};

// A row's running result, or one segment's part of it before the merge.
struct Part {
  float* top;   // one number
  float* sums;  // [16]
  float* out;   // [value_dim]
};

inline Join join(const Part& row, float top, Lanes sums, float weight) {
  const float m = *row.top > top ? *row.top : top;
  const float a = power_of_two(*row.top - m), b = power_of_two(top - m);
  *row.top = m;
  store(row.sums, fma(sums, set1(b), mul(load(row.sums), set1(a))));
  return {a, weight * b};
}

inline void join_out(float* out, const Join& by, Lanes segment_out) {
  store(out, fma(segment_out, set1(by.own), mul(load(out), set1(by.old))));
}

inline void begin(const Part& row, int64_t value_dim) {
  *row.top = -FLT_MAX;
  store(row.sums, zero());
  for (int64_t dim = 0; dim < value_dim; dim += kLanes) store(row.out + dim, zero());
}

inline void finish(const Part& row, const float* sink, int64_t value_dim, float* y) {
  float l = reduce_add(load(row.sums));
  Lanes a = set1(1.0f);
  if (sink) {
    const float s = *sink * kLog2E, whole = nearest_even(s);
    const float m = *row.top > whole ? *row.top : whole;
    float own[kLanes];
    store(own, exp2_bounded(set1(s - m)));
    const float shift = power_of_two(*row.top - m);
    l = std::fmaf(l, shift, own[0]);
    a = set1(shift);
  }
  for (int64_t dim = 0; dim < value_dim; dim += kLanes) store(y + dim, div(mul(load(row.out + dim), a), set1(l)));
}

}  // namespace sf::attention
