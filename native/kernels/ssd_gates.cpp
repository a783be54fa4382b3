// The gates of Mamba-2's scan, every head of every row by itself:
//   dt = softplus(x + bias),  decay = exp(rate dt)
#include "core/check.h"
#include "kernels/elements.h"
#include "kernels/softplus.h"

namespace sf {

Error op_ssd_gates(Context& context, sf_ssd_gates_args& args) {
  SF_REQUIRE(args.rows >= 0 && args.heads > 0 && args.x_stride >= args.heads, kBadShape);
  SF_REQUIRE(args.x && args.rate && args.bias && args.decay && args.dt, kNullPointer);
  run_rows(context, args.rows, args.heads, [&](int64_t row, int) {
    each_run(0, args.heads, [&](int64_t k, int n) {
      const Lanes dt = softplus(add(load_n(args.x + row * args.x_stride + k, n), load_n(args.bias + k, n)));
      store_n(args.dt + row * args.heads + k, dt, n);
      store_n(args.decay + row * args.heads + k, exp(mul(load_n(args.rate + k, n), dt)), n);
    });
  });
  return kOk;
}

}  // namespace sf
