// RMSNorm of gated rows, each group of columns by itself; sums in the contract's order:
//   h = silu(gate) x,  r = 1 / sqrt(sum(h h) / columns of a group + eps),  y = h r w
// The quantised rows are those that quantise would make of y.
#include <cmath>

#include "core/check.h"
#include "kernels/elements.h"
#include "kernels/glu.h"
#include "kernels/quantise.h"

namespace sf {
namespace {

void norm_group(const float* x, const float* gate, const float* weight, int64_t cols, float eps, float* y) {
  Lanes squares = zero();
  each_run(0, cols, [&](int64_t k, int n) {
    const Lanes h = mul(silu(load_n(gate + k, n)), load_n(x + k, n));
    store_n(y + k, h, n);
    squares = fma(h, h, squares);
  });
  const Lanes root = set1(1.0f / std::sqrt(reduce_add(squares) / static_cast<float>(cols) + eps));
  each_run(0, cols,
           [&](int64_t k, int n) { store_n(y + k, mul(mul(load_n(y + k, n), root), load_n(weight + k, n)), n); });
}

Error check_gated_norm(const sf_gated_norm_args& args) {
  SF_REQUIRE(args.x && args.gate && args.weight && (args.y || args.quantised.values), kNullPointer);
  SF_REQUIRE(args.rows >= 0 && args.groups > 0 && args.cols > 0 && args.cols % args.groups == 0, kBadShape);
  SF_REQUIRE(args.x_stride >= args.cols && args.gate_stride >= args.cols, kBadShape);
  SF_REQUIRE(!args.y || args.y_stride >= args.cols, kBadShape);
  return args.quantised.values ? check_activations(args.quantised, args.cols) : kOk;
}

}  // namespace

Error op_gated_norm(Context& context, sf_gated_norm_args& args) {
  if (const Error error = check_gated_norm(args)) return error;
  reserve_scratch<float>(context, args.cols);
  const int64_t cols = args.cols / args.groups;
  run_rows(context, args.rows, args.cols, [&](int64_t row, int thread) {
    float* y = args.y ? args.y + row * args.y_stride : context.scratch[thread].get<float>(args.cols);
    for (int64_t at = 0; at < args.cols; at += cols)
      norm_group(args.x + row * args.x_stride + at, args.gate + row * args.gate_stride + at, args.weight + at, cols,
                 args.eps, y + at);
    if (args.quantised.values) quantise_row(y, args.cols, args.quantised, row);
  });
  return kOk;
}

}  // namespace sf
