// Elementary functions: explicit fma, no libm, the same bits in every variant.
// Each one's method and largest error stand in docs/design/numerics.md, held by tests/ops/test_elementary.py.
// NaN in gives NaN out.
#pragma once
#include <cmath>
#include <limits>

#include "lanes.h"  // of the variant

namespace sf {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kSmallestNormal = std::numeric_limits<float>::min();

// Polynomial by fma, highest coefficient first.
template <class... Rest>
inline Lanes horner(Lanes x, float highest, Rest... rest) {
  Lanes p = set1(highest);
  ((p = fma(p, x, set1(rest))), ...);
  return p;
}

// e^x. Zero where the result would be denormal (x < -87.3365), infinity above 88.7228.
inline Lanes exp(Lanes x) {
  // n = x / ln 2, rounded by adding a number so large that its last bit counts ones: n stands in t's low bits.
  const Lanes large = set1(12582912.0f);  // 1.5 * 2^23
  const Lanes t = fma(x, set1(1.44269502f), large);
  const Lanes n = sub(t, large);
  // ln 2 in two parts, the first short enough for n * part to be exact.
  Lanes r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  Lanes p = horner(r, 1.973972539e-4f, 1.393511659e-3f, 8.333571255e-3f, 4.166646302e-2f, 1.666666567e-1f, 0.5f);
  p = add(fma(p, mul(r, r), r), set1(1.0f));
  // times 2^n: p lies in [0.7, 1.42] and the result is normal, so n is simply added to the exponent.
  Lanes y = as_float(addi(as_int(p), shl<23>(as_int(t))));
  // Outside the range y holds nonsense until here. x + infinity is infinity, or NaN where x is.
  y = select(less(x, set1(-87.3365402f)), zero(), y);
  return select(less(x, set1(88.7228394f)), y, add(x, set1(kInfinity)));
}

// Natural logarithm. -infinity at 0, NaN below.
inline Lanes log(Lanes x) {
  // x = 2^n (1 + f) with 1 + f in [2/3, 4/3), so that n is 0 near 1. Denormals are first made normal.
  const Mask denormal = less(x, set1(kSmallestNormal));
  const Ints bits = as_int(select(denormal, mul(x, set1(8388608.0f)), x));
  const Ints two_thirds = set1i(0x3f2aaaab);
  const Ints above = subi(bits, two_thirds);
  const Lanes n = sub(to_float(sar<23>(above)), select(denormal, set1(23.0f), zero()));
  const Lanes f = sub(as_float(addi(andi(above, set1i(0x007fffff)), two_thirds)), set1(1.0f));
  const Lanes p = horner(f, -1.287767142e-1f, 1.398598850e-1f, -1.218775213e-1f, 1.400547326e-1f, -1.668020785e-1f,
                         2.001043856e-1f, -2.499980479e-1f, 3.333321512e-1f);
  const Lanes square = mul(f, f);
  Lanes tail = fma(square, set1(-0.5f), mul(mul(square, f), p));
  // head = n ln2 + f; what its rounding lost goes to the tail, with the low part of ln 2.
  const Lanes ln2 = set1(0.693359375f);
  const Lanes head = fma(n, ln2, f);
  const Lanes lost = sub(f, fma(neg(n), ln2, head));
  tail = add(fma(n, set1(-2.12194440e-4f), lost), tail);
  Lanes y = add(head, tail);
  y = select(less(zero(), x), y, select(less(x, zero()), set1(kNan), set1(-kInfinity)));
  return select(less(x, set1(kInfinity)), y, x);
}

// x's magnitude with y's sign, for x not negative.
inline Lanes with_sign(Lanes x, Lanes y) { return as_float(addi(as_int(x), andi(as_int(y), set1i(INT32_MIN)))); }

inline Lanes tanh(Lanes x) {
  const Lanes a = abs(x), square = mul(x, x);
  const Lanes p = horner(square, 1.587038743e-3f, -7.414170075e-3f, 2.130652592e-2f, -5.385359749e-2f, 1.333224177e-1f,
                         -3.333329856e-1f);
  const Lanes small = fma(mul(p, square), a, a);
  const Lanes large = sub(set1(1.0f), div(set1(2.0f), add(exp(add(a, a)), set1(1.0f))));
  return with_sign(select(less(a, set1(0.8f)), small, large), x);
}

inline Lanes erf(Lanes x) {
  const Lanes a = min(set1(4.0f), abs(x));  // erf(4) rounds to 1; min returns its second operand when one is NaN
  const Lanes p = horner(mul(a, a), 7.806903159e-5f, -7.997853099e-4f, 5.187162198e-3f, -2.685334720e-2f,
                         1.128357872e-1f, -3.761262596e-1f, 1.283791661e-1f);
  const Lanes small = fma(p, a, a);
  const Lanes log_erfc = horner(a, 1.971842285e-4f, -3.055621637e-3f, 2.227711491e-2f, -1.040373817e-1f,
                                -6.370597482e-1f, -1.127749562f, -1.774940320e-4f);
  const Lanes large = sub(set1(1.0f), exp(log_erfc));
  return with_sign(select(less(a, set1(1.0f)), small, large), x);
}

// 1 / sqrt(x), both operations exact to half an ulp.
inline Lanes rsqrt(Lanes x) { return div(set1(1.0f), sqrt(x)); }

// ---- sine and cosine: in double without fma, then rounded; for tables, which are made once ----

// x = n pi/2 + r with |r| <= pi/4, as (r, n mod 4). pi/2 in three parts: the first two have 30 bits or fewer, so that
// their products with n are exact while n < 2^23, that is for |x| below 13 million.
struct Reduced {
  double r, quadrant;
};
inline Reduced reduce_angle(double x) {
  const double n = std::nearbyint(x * 0.6366197723675814);
  const double r = ((x - n * 1.570796325802803) - n * 9.920935791635221e-10) - n * 5.170182981794105e-19;
  return {r, n - 4.0 * std::floor(n * 0.25)};
}

// The Taylor sums to r^15 and r^16: what is left out is below 5e-17.
inline double sin_reduced(double r) {
  const double z = r * r;
  double p = -1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800.0;
  p = p * z + 1.0 / 362880.0;
  p = p * z - 1.0 / 5040.0;
  p = p * z + 1.0 / 120.0;
  p = p * z - 1.0 / 6.0;
  return r + r * z * p;
}
inline double cos_reduced(double r) {
  const double z = r * r;
  double p = 1.0 / 20922789888000.0;
  p = p * z - 1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600.0;
  p = p * z - 1.0 / 3628800.0;
  p = p * z + 1.0 / 40320.0;
  p = p * z - 1.0 / 720.0;
  p = p * z + 1.0 / 24.0;
  p = p * z - 1.0 / 2.0;
  return 1.0 + z * p;
}

inline double sine_of(Reduced a) {
  const double s = sin_reduced(a.r), c = cos_reduced(a.r);
  const double magnitude = a.quadrant == 1.0 || a.quadrant == 3.0 ? c : s;
  return a.quadrant >= 2.0 ? -magnitude : magnitude;
}

inline float sin(float x) { return static_cast<float>(sine_of(reduce_angle(x))); }
inline float cos(float x) {
  Reduced a = reduce_angle(x);
  a.quadrant = a.quadrant == 3.0 ? 0.0 : a.quadrant + 1.0;  // cos x = sin(x + pi/2)
  return static_cast<float>(sine_of(a));
}

}  // namespace sf
