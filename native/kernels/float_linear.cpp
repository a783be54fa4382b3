#include "kernels/float_linear.h"

#include "core/check.h"
#include "core/context.h"
#include "core/sizes.h"

namespace sf {
using namespace float_matmul;

Error op_float_linear(Context& context, sf_float_linear_args& args) {
  SF_REQUIRE(args.x && args.w && args.y, kNullPointer);
  SF_REQUIRE(args.rows >= 0 && args.n > 0 && args.k > 0, kBadShape);
  SF_REQUIRE(args.x_stride >= args.k && args.w_stride >= args.k && args.y_stride >= args.n, kBadShape);
  SF_REQUIRE(args.dtype == 0 || args.dtype == 1, kBadOption);
  constexpr int64_t block_sums = kBlockRows * kBlockOutputs * kLanes;
  reserve_scratch<float>(context, block_sums);
  const int64_t across = divide_up(args.n, kBlockOutputs);
  const int64_t down = divide_up(args.rows, kBlockRows);
  const auto compute = args.dtype ? float_linear_block<Bfloat16Weights> : float_linear_block<Float32Weights>;
  context.pool.run(across * down, [&](int64_t task, int thread) {
    const int64_t r = task / across * kBlockRows, n = task % across * kBlockOutputs;
    float* sums = context.scratch[thread].get<float>(block_sums);
    compute(args, {r, std::min(r + kBlockRows, args.rows), n, std::min(n + kBlockOutputs, args.n), sums});
  });
  return kOk;
}

}  // namespace sf
