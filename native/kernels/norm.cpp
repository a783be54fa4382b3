// RMSNorm and LayerNorm. The formulas, sums in the contract's order:
//   h = x + residual
//   RMSNorm:    r = 1 / sqrt(sum(h h) / cols + eps),                y = h r w
//   LayerNorm:  d = h - sum(h) / cols,  r = 1 / sqrt(sum(d d) / cols + eps),  y = d r w
//   w = weight_offset + weight (1 without a weight);  with a bias the last product is fma(d r, w, bias).
// The quantised rows are those that quantise would make of y.
#include "core/check.h"
#include "core/elementary.h"
#include "kernels/elements.h"
#include "kernels/quantise.h"

namespace sf {
namespace {

float inverse_root(Lanes squares, int64_t cols, float eps) {
  return 1.0f / std::sqrt(reduce_add(squares) / static_cast<float>(cols) + eps);
}

// Sum of x and the residual, written to h (if either is not null), and what RMSNorm and LayerNorm sum over it.
struct Sums {
  Lanes plain, squares;
};
Sums sum_row(const float* x, const float* residual, float* h, int64_t cols) {
  Sums sums{zero(), zero()};
  each_run(0, cols, [&](int64_t k, int n) {
    Lanes v = load_n(x + k, n);
    if (residual) v = add(v, load_n(residual + k, n));
    if (h) store_n(h + k, v, n);
    sums.plain = add(sums.plain, v);
    sums.squares = fma(v, v, sums.squares);
  });
  return sums;
}

Lanes squared_differences(const float* h, float mean, int64_t cols) {
  Lanes squares = zero();
  each_run(0, cols, [&](int64_t k, int n) {
    const Lanes d = select(first(n), sub(load_n(h + k, n), set1(mean)), zero());
    squares = fma(d, d, squares);
  });
  return squares;
}

// Locals, not args, inside the loop: a vector store may alias anything, so args would be read anew each time.
void scale_row(const sf_norm_args& args, const float* h, float mean, float r, float* y) {
  const Lanes offset = set1(args.weight_offset), root = set1(r), centre = set1(mean);
  const float *weight = args.weight, *bias = args.bias;
  const bool centred = args.kind == 1;
  each_run(0, args.cols, [&](int64_t k, int n) {
    Lanes v = load_n(h + k, n);
    if (centred) v = sub(v, centre);
    v = mul(v, root);
    const Lanes w = weight ? add(offset, load_n(weight + k, n)) : set1(1.0f);
    store_n(y + k, bias ? fma(v, w, load_n(bias + k, n)) : mul(v, w), n);
  });
}

void norm_row(const sf_norm_args& args, int64_t row, float* scratch) {
  const int64_t whole = row / args.heads, within = row % args.heads * args.cols;
  const float* x = args.x + whole * args.x_stride + within;
  const float* residual = args.residual ? args.residual + whole * args.residual_stride + within : nullptr;
  float* sum = args.h ? args.h + whole * args.h_stride + within : residual ? scratch : nullptr;
  Sums sums = sum_row(x, residual, sum, args.cols);
  const float* h = sum ? sum : x;
  float mean = 0.0f;
  if (args.kind == 1) {
    mean = reduce_add(sums.plain) / static_cast<float>(args.cols);
    sums.squares = squared_differences(h, mean, args.cols);
  }
  float* y = args.y ? args.y + whole * args.y_stride + within : scratch;
  scale_row(args, h, mean, inverse_root(sums.squares, args.cols, args.eps), y);
  if (args.quantised.values) quantise_row(y, args.cols, args.quantised, row);
}

Error check_norm(const sf_norm_args& args) {
  SF_REQUIRE(args.x && (args.y || args.quantised.values), kNullPointer);
  SF_REQUIRE(args.rows >= 0 && args.cols > 0 && args.heads > 0, kBadShape);
  const int64_t least = args.heads * args.cols;
  SF_REQUIRE(args.x_stride >= least && (!args.residual || args.residual_stride >= least), kBadShape);
  SF_REQUIRE((!args.h || args.h_stride >= least) && (!args.y || args.y_stride >= least), kBadShape);
  SF_REQUIRE(args.kind == 0 || args.kind == 1, kBadOption);
  return args.quantised.values ? check_activations(args.quantised, args.cols) : kOk;
}

}  // namespace

Error op_norm(Context& context, sf_norm_args& args) {
  if (const Error error = check_norm(args)) return error;
  reserve_scratch<float>(context, args.cols);
  run_rows(context, args.rows, args.cols,
           [&](int64_t row, int thread) { norm_row(args, row, context.scratch[thread].get<float>(args.cols)); });
  return kOk;
}

}  // namespace sf
