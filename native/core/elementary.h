// Elementary functions on sixteen lanes: explicit fma, no libm, the same bits in every variant.
// Each one's largest error stands in docs/design/numerics.md and is held by tests/ops/test_elementary.py.
#pragma once
#include "lanes.h"

namespace sf {

// e^x. Zero below -87, infinity above 88.37.
inline Lanes exp(Lanes x) {
  const Lanes clamped = min(max(x, set1(-87.0f)), set1(88.37f));
  const Lanes n = round_even(mul(clamped, set1(1.44269504f)));
  // ln 2 in two parts, the first short enough for n * part to be exact.
  Lanes r = fma(n, set1(-0.693359375f), clamped);
  r = fma(n, set1(2.12194440e-4f), r);
  Lanes p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = fma(p, mul(r, r), r);
  p = add(p, set1(1.0f));
  const Lanes power = as_float(shl<23>(addi(to_int(n), set1i(127))));
  Lanes y = mul(p, power);
  y = select(less(x, set1(-87.0f)), zero(), y);
  return select(less(set1(88.37f), x), set1(__builtin_inff()), y);
}

}  // namespace sf
