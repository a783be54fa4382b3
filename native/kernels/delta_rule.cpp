// The gated delta rule. A head's state S is a matrix [key_dim][value_dim]; its columns never meet, so that the order of
// additions is that of the key's lanes, for any number of columns at once. For each row, with sums in ascending i:
//   m = sum of fma(k[i], S[i], m)                      what the state holds for the key
//   d = beta (v - decay m)                             what is to change
//   S[i] = fma(k[i], d, decay S[i]),  y = sum of fma(q[i], S[i], y)
// Where each lane i of the key has a decay of its own:
//   m = sum of fma(k[i], decay[i] S[i], m),  d = beta (v - m),  S[i] = fma(k[i], d, decay[i] S[i])
#include <type_traits>

#include "kernels/state_columns.h"
#include "kernels/state_rows.h"

namespace sf {
namespace {

// One row: S [key_dim][Runs * kLanes] changes, y gets the outputs of these columns.
template <int Runs, bool ByLane>
void step(float* state, int64_t key_dim, const float* q, const float* k, const float* v, const float* decay, float beta,
          float* y) {
  constexpr int64_t kWidth = Runs * kLanes;
  Lanes held[Runs], change[Runs], sum[Runs];
  for (int run = 0; run < Runs; ++run) held[run] = sum[run] = zero();
  for (int64_t i = 0; i < key_dim; ++i) {
    const Lanes key = set1(k[i]);
    for (int run = 0; run < Runs; ++run) {
      float* at = state + i * kWidth + run * kLanes;
      if constexpr (ByLane) store(at, mul(set1(decay[i]), load(at)));
      held[run] = fma(key, load(at), held[run]);
    }
  }
  const Lanes fade = set1(decay[0]), rate = set1(beta);
  for (int run = 0; run < Runs; ++run) {
    const Lanes kept = ByLane ? held[run] : mul(fade, held[run]);
    change[run] = mul(rate, sub(load(v + run * kLanes), kept));
  }
  for (int64_t i = 0; i < key_dim; ++i) {
    const Lanes key = set1(k[i]), query = set1(q[i]);
    for (int run = 0; run < Runs; ++run) {
      float* at = state + i * kWidth + run * kLanes;
      const Lanes faded = ByLane ? load(at) : mul(fade, load(at)), changed = fma(key, change[run], faded);
      store(at, changed);
      sum[run] = fma(query, changed, sum[run]);
    }
  }
  for (int run = 0; run < Runs; ++run) store(y + run * kLanes, sum[run]);
}

template <bool ByLane, int Runs>
void delta_row(const sf_delta_rule_args& args, const StateColumns<Runs>& columns, int64_t row) {
  const int64_t key_head = args.tiled ? columns.head % args.key_heads : columns.head / (args.heads / args.key_heads);
  const int64_t qk = row * args.qkv_stride + key_head * args.key_dim;
  const int64_t value = columns.head * args.value_dim + columns.first, gate = row * args.heads + columns.head;
  step<Runs, ByLane>(columns.own, args.key_dim, args.q + qk, args.k + qk, args.v + row * args.qkv_stride + value,
                     args.decay + gate * (ByLane ? args.key_dim : 1), args.beta[gate],
                     args.y + row * args.y_stride + value);
}

Error check_delta_rule(const sf_delta_rule_args& args) {
  SF_REQUIRE(args.q && args.k && args.v && args.decay && args.beta && args.y, kNullPointer);
  SF_REQUIRE(args.key_heads > 0 && args.heads % args.key_heads == 0, kBadShape);
  SF_REQUIRE(args.qkv_stride >= args.key_heads * args.key_dim, kBadShape);
  SF_REQUIRE(args.qkv_stride >= args.heads * args.value_dim && args.y_stride >= args.heads * args.value_dim, kBadShape);
  SF_REQUIRE((args.tiled == 0 || args.tiled == 1) && (args.by_lane == 0 || args.by_lane == 1), kBadOption);
  return kOk;
}

}  // namespace

Error op_delta_rule(Context& context, sf_delta_rule_args& args) {
  const HeadStates states{args.state, args.heads, args.key_dim, args.value_dim};
  if (const Error error = check_state_rows(args.rows)) return error;
  if (const Error error = check_head_states(states)) return error;
  if (const Error error = check_delta_rule(args)) return error;
  const auto pass = [&](auto by_lane) {
    pass_all(context, args.rows, states,
             [&](const auto& columns, int64_t row) { delta_row<by_lane.value>(args, columns, row); });
  };
  args.by_lane ? pass(std::true_type{}) : pass(std::false_type{});
  return kOk;
}

}  // namespace sf
