// softplus(x) = max(x, 0) + log(u) + (e - (u - 1)) / u,  e = exp(-|x|),  u = 1 + e
// The last term is what u lost of e by rounding: where x is far below 0 the result is no larger than that.
#pragma once
#include "core/elementary.h"

namespace sf {

inline Lanes softplus(Lanes x) {
  const Lanes one = set1(1.0f), e = exp(neg(abs(x))), u = add(one, e);
  return add(max(zero(), x), add(log(u), div(sub(e, sub(u, one)), u)));
}

}  // namespace sf
