#include "kernels/quantise.h"

#include "core/check.h"
#include "core/context.h"

namespace sf {

Error op_quantise(Context& context, sf_quantise_args& args) {
  SF_REQUIRE(args.x, kNullPointer);
  SF_REQUIRE(args.rows >= 0 && args.cols > 0 && args.x_stride >= args.cols, kBadShape);
  if (const Error error = check_activations(args.out, args.cols)) return error;
  context.pool.run(args.rows,
                   [&](int64_t row, int) { quantise_row(args.x + row * args.x_stride, args.cols, args.out, row); });
  return kOk;
}

}  // namespace sf
