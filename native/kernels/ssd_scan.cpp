// Mamba-2's scan. A head's state S is a matrix [state_dim][head_dim]; its columns never meet, so that the order of
// additions is that of the state's rows, for any number of columns at once. For each row, with sums in ascending i:
//   u = dt x
//   S[i] = fma(b[i], u, decay S[i]),  s = sum of fma(c[i], S[i], s)
//   y = fma(skip, x, s)
#include "kernels/state_columns.h"
#include "kernels/state_rows.h"

namespace sf {
namespace {

struct ScanGates {
  float decay, dt, skip;
};

// One row: S [state_dim][Runs * kLanes] changes, y gets the outputs of these columns.
template <int Runs>
void step(float* state, int64_t state_dim, const float* x, const float* b, const float* c, ScanGates gates, float* y) {
  constexpr int64_t kWidth = Runs * kLanes;
  Lanes input[Runs], sum[Runs];
  const Lanes fade = set1(gates.decay);
  for (int run = 0; run < Runs; ++run) {
    input[run] = mul(set1(gates.dt), load(x + run * kLanes));
    sum[run] = zero();
  }
  for (int64_t i = 0; i < state_dim; ++i) {
    const Lanes in = set1(b[i]), out = set1(c[i]);
    for (int run = 0; run < Runs; ++run) {
      float* at = state + i * kWidth + run * kLanes;
      const Lanes changed = fma(in, input[run], mul(fade, load(at)));
      store(at, changed);
      sum[run] = fma(out, changed, sum[run]);
    }
  }
  for (int run = 0; run < Runs; ++run) store(y + run * kLanes, fma(set1(gates.skip), load(x + run * kLanes), sum[run]));
}

template <int Runs>
void scan_row(const sf_ssd_scan_args& args, const StateColumns<Runs>& columns, int64_t row) {
  const int64_t group = columns.head / (args.heads / args.groups), gate = row * args.heads + columns.head;
  const int64_t bc = row * args.x_stride + group * args.state_dim, own = columns.head * args.head_dim + columns.first;
  step<Runs>(columns.own, args.state_dim, args.x + row * args.x_stride + own, args.b + bc, args.c + bc,
             {args.decay[gate], args.dt[gate], args.skip[columns.head]}, args.y + row * args.y_stride + own);
}

Error check_ssd_scan(const sf_ssd_scan_args& args) {
  SF_REQUIRE(args.x && args.b && args.c && args.decay && args.dt && args.skip && args.y, kNullPointer);
  SF_REQUIRE(args.groups > 0 && args.heads % args.groups == 0, kBadShape);
  SF_REQUIRE(args.x_stride >= args.groups * args.state_dim, kBadShape);
  SF_REQUIRE(args.x_stride >= args.heads * args.head_dim && args.y_stride >= args.heads * args.head_dim, kBadShape);
  return kOk;
}

}  // namespace

Error op_ssd_scan(Context& context, sf_ssd_scan_args& args) {
  const HeadStates states{args.state, args.heads, args.state_dim, args.head_dim};
  if (const Error error = check_state_rows(args.rows)) return error;
  if (const Error error = check_head_states(states)) return error;
  if (const Error error = check_ssd_scan(args)) return error;
  pass_all(context, args.rows, states, [&](const auto& columns, int64_t row) { scan_row(args, columns, row); });
  return kOk;
}

}  // namespace sf
