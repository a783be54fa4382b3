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
  SF_REQUIRE(args.groups > 0 && args.groups <= args.experts && args.experts % args.groups == 0, kBadShape);
  SF_REQUIRE(args.kept_groups > 0 && args.kept_groups <= args.groups, kBadShape);
  const int64_t size = args.experts / args.groups;
  SF_REQUIRE(args.k <= args.kept_groups * size && args.group_best <= size, kBadShape);
  SF_REQUIRE(args.scoring >= kSoftmaxAll && args.scoring <= kSigmoid, kBadOption);
  SF_REQUIRE(args.group_best == 1 || args.group_best == 2, kBadOption);
  // A thread's scratch: the keys, the groups' keys, then the scores in the room of as many keys.
  const int64_t keys_size = args.experts + args.groups, scratch_size = keys_size + args.experts;
  reserve_scratch<uint64_t>(context, scratch_size);
  context.pool.run(divide_up(args.rows, kTaskRows), [&](int64_t task, int thread) {
    auto* keys = context.scratch[thread].get<uint64_t>(scratch_size);
    auto* scores = reinterpret_cast<float*>(keys + keys_size);
    for (int64_t row = task * kTaskRows; row < std::min((task + 1) * kTaskRows, args.rows); ++row)
      route_row(args, row, keys, keys + args.experts, scores);
  });
  return kOk;
}

}  // namespace sf
