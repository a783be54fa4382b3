// The activations of a feed-forward layer, on sixteen lanes:
//   logistic(x, t) = x / (1 + exp(-t))
//   silu(x)        = logistic(x, x)
//   gelu(x)        = (x / 2) (1 + erf(x / sqrt 2))
//   gelu_tanh(x)   = logistic(x, x (a x x + b)),  b = 2 sqrt(2 / pi), a = 0.044715 b
//                    since (1 + tanh t) / 2 = 1 / (1 + exp(-2t))
//   sigmoid(x)     = logistic(1, x)
//   relu2(x)       = max(0, x) max(0, x)
//   clamped(x, up) = logistic(x', alpha x') (up' + 1),  x' = min(x, limit), up' = up within +-limit
#pragma once
#include "core/elementary.h"
#include "core/ops.h"

namespace sf {

enum class Activation : int32_t { kSilu, kGelu, kGeluTanh, kClamped, kSigmoid, kRelu2 };

inline Lanes logistic(Lanes x, Lanes t) { return div(x, add(set1(1.0f), exp(neg(t)))); }

inline Lanes silu(Lanes x) { return logistic(x, x); }

inline Lanes gelu(Lanes x) { return mul(mul(x, set1(0.5f)), add(set1(1.0f), erf(mul(x, set1(0.707106781f))))); }

inline Lanes gelu_tanh(Lanes x) { return logistic(x, mul(x, fma(mul(x, x), set1(0.0713548163f), set1(1.59576912f)))); }

template <Activation kind>
inline Lanes activate(Lanes x, const sf_glu_args& args) {
  if constexpr (kind == Activation::kSilu) return silu(x);
  if constexpr (kind == Activation::kGelu) return gelu(x);
  if constexpr (kind == Activation::kGeluTanh) return gelu_tanh(x);
  if constexpr (kind == Activation::kSigmoid) return logistic(set1(1.0f), x);
  if constexpr (kind == Activation::kRelu2) return mul(max(zero(), x), max(zero(), x));
  const Lanes low = min(set1(args.limit), x);
  return logistic(low, mul(set1(args.alpha), low));
}

template <Activation kind>
inline Lanes gated(Lanes gate, Lanes up, const sf_glu_args& args) {
  if constexpr (kind == Activation::kClamped) up = add(max(set1(-args.limit), min(set1(args.limit), up)), set1(1.0f));
  return mul(activate<kind>(gate, args), up);
}

}  // namespace sf
