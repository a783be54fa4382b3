// What depends on how a row's values are spread, sums in the contract's order:
//   sparsify:   d = x - sum(x) / cols,  s = sqrt(sum(d d) / cols),  x = max(0, x - fma(spreads, s, mean))
//   match_rms:  y = y (sqrt(sum(x x) / cols) / sqrt(max(least, sum(y y) / cols)))
#include <cmath>

#include "core/check.h"
#include "kernels/elements.h"

namespace sf {
namespace {

float mean_of(Lanes sum, int64_t cols) { return reduce_add(sum) / static_cast<float>(cols); }

float mean_square(const float* x, float centre, int64_t cols) {
  Lanes squares = zero();
  each_run(0, cols, [&](int64_t k, int n) {
    const Lanes d = select(first(n), sub(load_n(x + k, n), set1(centre)), zero());
    squares = fma(d, d, squares);
  });
  return mean_of(squares, cols);
}

void sparsify_row(float* x, int64_t cols, float spreads) {
  Lanes sum = zero();
  each_run(0, cols, [&](int64_t k, int n) { sum = add(sum, load_n(x + k, n)); });
  const float mean = mean_of(sum, cols);
  const Lanes least = set1(std::fma(spreads, std::sqrt(mean_square(x, mean, cols)), mean));
  each_run(0, cols, [&](int64_t k, int n) { store_n(x + k, max(zero(), sub(load_n(x + k, n), least)), n); });
}

void match_row(const float* x, float* y, int64_t cols, float least) {
  const float own = std::max(least, mean_square(y, 0.0f, cols));
  const Lanes scale = set1(std::sqrt(mean_square(x, 0.0f, cols)) / std::sqrt(own));
  each_run(0, cols, [&](int64_t k, int n) { store_n(y + k, mul(load_n(y + k, n), scale), n); });
}

}  // namespace

Error op_sparsify(Context& context, sf_sparsify_args& args) {
  SF_REQUIRE(args.x, kNullPointer);
  SF_REQUIRE(args.rows >= 0 && args.cols > 0 && args.x_stride >= args.cols, kBadShape);
  run_rows(context, args.rows, args.cols,
           [&](int64_t row, int) { sparsify_row(args.x + row * args.x_stride, args.cols, args.spreads); });
  return kOk;
}

Error op_match_rms(Context& context, sf_match_rms_args& args) {
  SF_REQUIRE(args.x && args.y, kNullPointer);
  SF_REQUIRE(args.rows >= 0 && args.cols > 0, kBadShape);
  SF_REQUIRE(args.x_stride >= args.cols && args.y_stride >= args.cols, kBadShape);
  SF_REQUIRE(args.least > 0.0f, kBadOption);
  run_rows(context, args.rows, args.cols, [&](int64_t row, int) {
    match_row(args.x + row * args.x_stride, args.y + row * args.y_stride, args.cols, args.least);
  });
  return kOk;
}

}  // namespace sf
