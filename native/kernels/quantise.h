// One row of floats to fixed point. The formula, the same in every variant:
//   two limbs:  inv = 16256 / max|x|,  q = nearest_even(x * inv),  hi = (q + 64) >> 7,  lo = q - 128 hi
//   one limb:   inv = 127 / max|x| of the group,  q = nearest_even(x * inv)
// scale = max|x| / 16256 (or 127); a row or group of zeros has scale 0. 16256 = 127 * 128 keeps both limbs in int8.
#pragma once
#include "core/ops.h"
#include "core/sizes.h"
#include "lanes.h"  // of the variant

namespace sf {

inline constexpr float kTwoLimbMax = 16256.0f;
inline constexpr float kOneLimbMax = 127.0f;

inline int lanes_left(int64_t count, int64_t at) { return count - at < kLanes ? static_cast<int>(count - at) : kLanes; }

// A maximum has no order: four of them at once hide the instruction's latency.
inline float largest(const float* x, int64_t count) {
  Lanes most[4] = {zero(), zero(), zero(), zero()};
  int64_t k = 0;
  for (; k + 4 * kLanes <= count; k += 4 * kLanes)
    for (int i = 0; i < 4; ++i) most[i] = max(most[i], abs(load(x + k + i * kLanes)));
  for (; k < count; k += kLanes) most[0] = max(most[0], abs(load_n(x + k, lanes_left(count, k))));
  return reduce_max(max(max(most[0], most[1]), max(most[2], most[3])));
}

// x * inv never exceeds the bound by more than rounding, so no clamp is needed. Below 1e-30 bound / most could
// overflow: such a row or group counts as zeros.
inline float inverse(float most, float bound) { return most > 1e-30f ? bound / most : 0.0f; }

inline Ints rounded(const float* x, Lanes inv) { return to_int(mul(load(x), inv)); }
// From column k on, zero beyond cols.
inline Ints rounded(const float* x, int64_t cols, int64_t k, Lanes inv) {
  const int left = k < cols ? lanes_left(cols, k) : 0;
  return to_int(mul(load_n(x + (left ? k : 0), left), inv));
}

// The stride may be any multiple of 16 that holds cols.
inline void quantise_two_limbs(const float* x, int64_t cols, int8_t* hi, int64_t stride, float* scale) {
  const float most = largest(x, cols);
  const Lanes inv = set1(inverse(most, kTwoLimbMax));
  int8_t* lo = hi + stride;
  int64_t k = 0;
  for (; k + 64 <= cols; k += 64)
    store_two_limbs(hi + k, lo + k, rounded(x + k, inv), rounded(x + k + 16, inv), rounded(x + k + 32, inv),
                    rounded(x + k + 48, inv));
  for (; k < stride; k += kLanes) {
    const Ints q = rounded(x, cols, k, inv), high = sar<7>(addi(q, set1i(64)));
    store_bytes(hi + k, high);
    store_bytes(lo + k, subi(q, shl<7>(high)));
  }
  *scale = most / kTwoLimbMax;
}

inline void quantise_one_limb(const float* x, int64_t cols, int8_t* out, int64_t stride, int64_t group, float* scales) {
  for (int64_t start = 0, g = 0; start < stride; start += group, ++g) {
    const int64_t end = start + group < stride ? start + group : stride;
    const int64_t count = start < cols ? (end < cols ? end : cols) - start : 0;
    const float most = largest(x + (count ? start : 0), count);
    const Lanes inv = set1(inverse(most, kOneLimbMax));
    int64_t k = start;
    for (; k + 64 <= start + count; k += 64)
      store_bytes(out + k, rounded(x + k, inv), rounded(x + k + 16, inv), rounded(x + k + 32, inv),
                  rounded(x + k + 48, inv));
    for (; k < end; k += kLanes) store_bytes(out + k, rounded(x, cols, k, inv));
    if (start < cols) scales[g] = most / kOneLimbMax;
  }
}

inline int64_t num_groups(int64_t cols, int64_t group) { return group ? divide_up(cols, group) : 1; }

// Row number `row` of the output gets x.
inline void quantise_row(const float* x, int64_t cols, const sf_activations& out, int64_t row) {
  int8_t* values = out.values + row * out.limbs * out.stride;
  if (out.limbs == 2) return quantise_two_limbs(x, cols, values, out.stride, out.scales + row);
  const int64_t group = out.group ? out.group : out.stride;
  quantise_one_limb(x, cols, values, out.stride, group, out.scales + row * num_groups(cols, out.group));
}

}  // namespace sf
