// The gates of the delta rule, each by itself:
//   decay = exp(rate softplus(a + bias)),  beta = 1 / (1 + exp(-b))
#include "core/check.h"
#include "kernels/elements.h"
#include "kernels/glu.h"
#include "kernels/softplus.h"

namespace sf {

Error op_delta_gates(Context& context, sf_delta_gates_args& args) {
  SF_REQUIRE(args.rows >= 0 && args.decays > 0 && args.betas > 0, kBadShape);
  SF_REQUIRE(args.a_stride >= args.decays && args.b_stride >= args.betas, kBadShape);
  SF_REQUIRE(args.a && args.b && args.rate && args.bias && args.decay && args.beta, kNullPointer);
  run_rows(context, args.rows, args.decays + args.betas, [&](int64_t row, int) {
    each_run(0, args.decays, [&](int64_t k, int n) {
      const Lanes a = add(load_n(args.a + row * args.a_stride + k, n), load_n(args.bias + k, n));
      store_n(args.decay + row * args.decays + k, exp(mul(load_n(args.rate + k, n), softplus(a))), n);
    });
    each_run(0, args.betas, [&](int64_t k, int n) {
      const Lanes b = load_n(args.b + row * args.b_stride + k, n);
      store_n(args.beta + row * args.betas + k, logistic(set1(1.0f), b), n);
    });
  });
  return kOk;
}

}  // namespace sf
