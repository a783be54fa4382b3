#include "kernels/route.h"

#include "core/check.h"
#include "core/context.h"
#include "core/sizes.h"

namespace sf {
using namespace routing;
namespace {

constexpr int64_t kTaskRows = 16;

}  // namespace

Error op_route(Context& context, sf_route_args& args) {
  SF_REQUIRE(args.logits && args.ids && args.weights, kNullPointer);
  SF_REQUIRE(args.rows >= 0 && args.k > 0 && args.k <= args.experts && args.experts <= (1 << 20), kBadShape);
  SF_REQUIRE(args.scoring >= kSoftmaxAll && args.scoring <= kSigmoid, kBadOption);
  // A thread's scratch: the keys, then the scores in the room of as many keys.
  reserve_scratch<uint64_t>(context, 2 * args.experts);
  context.pool.run(divide_up(args.rows, kTaskRows), [&](int64_t task, int thread) {
    auto* keys = context.scratch[thread].get<uint64_t>(2 * args.experts);
    auto* scores = reinterpret_cast<float*>(keys + args.experts);
    for (int64_t row = task * kTaskRows; row < std::min((task + 1) * kTaskRows, args.rows); ++row)
      route_row(args, row, keys, scores);
  });
  return kOk;
}

}  // namespace sf
