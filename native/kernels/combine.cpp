// Expert outputs back to rows: sum = 0; for j ascending: sum = fma(weights[r][j], x[places[r][j]], sum);
// y[r] = sum + residual[r].
#include "core/check.h"
#include "core/context.h"
#include "lanes.h"  // of the variant

namespace sf {
namespace {

Lanes combined(const sf_combine_args& args, int64_t row, int64_t col, int n) {
  Lanes sum = zero();
  for (int64_t j = row * args.k; j < (row + 1) * args.k; ++j)
    sum = fma(set1(args.weights[j]), load_n(args.x + args.places[j] * args.x_stride + col, n), sum);
  return args.residual ? add(sum, load_n(args.residual + row * args.residual_stride + col, n)) : sum;
}

}  // namespace

Error op_combine(Context& context, sf_combine_args& args) {
  SF_REQUIRE(args.x && args.places && args.weights && args.y, kNullPointer);
  SF_REQUIRE(args.rows >= 0 && args.cols > 0 && args.k > 0 && args.x_rows >= 0, kBadShape);
  SF_REQUIRE(args.x_stride >= args.cols && args.y_stride >= args.cols, kBadShape);
  SF_REQUIRE(!args.residual || args.residual_stride >= args.cols, kBadShape);
  for (int64_t j = 0; j < args.rows * args.k; ++j)
    SF_REQUIRE(args.places[j] >= 0 && args.places[j] < args.x_rows, kOutOfRange);
  context.pool.run(args.rows, [&](int64_t row, int) {
    for (int64_t col = 0; col < args.cols; col += kLanes) {
      const int n = args.cols - col < kLanes ? static_cast<int>(args.cols - col) : kLanes;
      store_n(args.y + row * args.y_stride + col, combined(args, row, col, n), n);
    }
  });
  return kOk;
}

}  // namespace sf
