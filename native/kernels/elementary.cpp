#include "core/elementary.h"

#include "core/check.h"
#include "kernels/elements.h"

namespace sf {
namespace {

template <class Function>
void on_lanes(Context& context, const sf_elementary_args& args, const Function& function) {
  run_elements(context, args.count, [&](int64_t i, int n) { store_n(args.y + i, function(load_n(args.x + i, n)), n); });
}

template <class Function>
void one_by_one(Context& context, const sf_elementary_args& args, const Function& function) {
  run_elements(context, args.count, [&](int64_t i, int n) {
    for (int64_t k = i; k < i + n; ++k) args.y[k] = function(args.x[k]);
  });
}

}  // namespace

Error op_elementary(Context& context, sf_elementary_args& args) {
  SF_REQUIRE(args.x && args.y, kNullPointer);
  SF_REQUIRE(args.count >= 0, kBadShape);
  switch (args.function) {
    case 0:
      on_lanes(context, args, [](Lanes x) { return exp(x); });
      return kOk;
    case 1:
      on_lanes(context, args, [](Lanes x) { return log(x); });
      return kOk;
    case 2:
      on_lanes(context, args, [](Lanes x) { return tanh(x); });
      return kOk;
    case 3:
      on_lanes(context, args, [](Lanes x) { return erf(x); });
      return kOk;
    case 4:
      one_by_one(context, args, [](float x) { return sin(x); });
      return kOk;
    case 5:
      one_by_one(context, args, [](float x) { return cos(x); });
      return kOk;
    case 6:
      on_lanes(context, args, [](Lanes x) { return rsqrt(x); });
      return kOk;
  }
  return kBadOption;
}

}  // namespace sf
