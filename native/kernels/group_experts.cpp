// Rows sorted by expert: a counting sort, stable, on one thread (a few thousand pairs at most).
#include <algorithm>

#include "core/check.h"
#include "core/context.h"

namespace sf {

Error op_group_experts(Context&, sf_group_experts_args& args) {
  SF_REQUIRE(args.ids && args.sources && args.starts && args.places, kNullPointer);
  SF_REQUIRE(args.rows >= 0 && args.k > 0 && args.experts > 0, kBadShape);
  const int64_t pairs = args.rows * args.k;
  for (int64_t i = 0; i < pairs; ++i) SF_REQUIRE(args.ids[i] >= 0 && args.ids[i] < args.experts, kOutOfRange);
  std::fill_n(args.starts, args.experts + 1, 0);
  for (int64_t i = 0; i < pairs; ++i) ++args.starts[args.ids[i] + 1];
  for (int64_t e = 0; e < args.experts; ++e) args.starts[e + 1] += args.starts[e];
  // starts[e] moves from where e's rows begin to where they end, which is where the next one's begin.
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t place = args.starts[args.ids[i]]++;
    args.places[i] = place;
    args.sources[place] = i / args.k;
  }
  for (int64_t e = args.experts; e > 0; --e) args.starts[e] = args.starts[e - 1];
  args.starts[0] = 0;
  return kOk;
}

}  // namespace sf
