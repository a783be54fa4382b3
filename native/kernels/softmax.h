// Pieces of softmax in the contract's order, over a row of any length. NaN counts as -infinity.
#pragma once
#include "core/elementary.h"
#include "lanes.h"  // of the variant

namespace sf {

inline constexpr float kMinusInfinity = -__builtin_inff();

// Sixteen values from `at`, -infinity beyond the end. max returns its second operand where either is NaN.
inline Lanes values_at(const float* x, int64_t count, int64_t at) {
  const Lanes floor = set1(kMinusInfinity);
  if (at + kLanes <= count) return max(load(x + at), floor);
  const int left = at < count ? static_cast<int>(count - at) : 0;
  return left ? select(first(left), max(load_n(x + at, left), floor), floor) : floor;
}

inline float largest_value(const float* x, int64_t count) {
  Lanes most = set1(kMinusInfinity);
  for (int64_t i = 0; i < count; i += kLanes) most = max(most, values_at(x, count, i));
  return reduce_max(most);
}

// Sum of e^(x - most) in sixteen strided sums and the tree.
inline float sum_of_exp(const float* x, int64_t count, float most) {
  Lanes sums = zero();
  for (int64_t i = 0; i < count; i += kLanes) sums = add(sums, exp(sub(values_at(x, count, i), set1(most))));
  return reduce_add(sums);
}

inline float first_lane(Lanes a) {
  float lanes[kLanes];
  store(lanes, a);
  return lanes[0];
}
inline float log_of(float x) { return first_lane(log(set1(x))); }

}  // namespace sf
