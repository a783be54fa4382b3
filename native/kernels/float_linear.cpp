#include "kernels/float_linear.h"

#include <algorithm>

#include "core/check.h"
#include "core/context.h"

namespace sf {
namespace {

// Of a task: few enough outputs that their weights stay near while the rows go by.
constexpr int64_t kTaskRows = 64;
constexpr int64_t kTaskOutputs = 24;

}  // namespace

Error op_float_linear(Context& context, sf_float_linear_args& args) {
  SF_REQUIRE(args.x && args.w && args.y, kNullPointer);
  SF_REQUIRE(args.rows >= 0 && args.n > 0 && args.k > 0, kBadShape);
  SF_REQUIRE(args.x_stride >= args.k && args.w_stride >= args.k && args.y_stride >= args.n, kBadShape);
  SF_REQUIRE(args.dtype == 0 || args.dtype == 1, kBadOption);
  const int64_t across = (args.n + kTaskOutputs - 1) / kTaskOutputs;
  const int64_t down = (args.rows + kTaskRows - 1) / kTaskRows;
  const auto block = args.dtype ? float_linear_block<Bfloat16Weights> : float_linear_block<Float32Weights>;
  context.pool.run(across * down, [&](int64_t task, int) {
    const int64_t r = task / across * kTaskRows, n = task % across * kTaskOutputs;
    block(args, r, std::min(r + kTaskRows, args.rows), n, std::min(n + kTaskOutputs, args.n));
  });
  return kOk;
}

}  // namespace sf
