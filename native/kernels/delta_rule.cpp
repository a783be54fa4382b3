// The gated delta rule. A head's state S is a matrix [key_dim][value_dim]; its columns never meet, so that the order of
// additions is that of the key's lanes, for any number of columns at once. For each row, with sums in ascending i:
//   m = sum of fma(k[i], S[i], m)                      what the state holds for the key
//   d = beta (v - decay m)                             what is to change
//   S[i] = fma(k[i], d, decay S[i]),  y = sum of fma(q[i], S[i], y)
#include "kernels/state_columns.h"
#include "kernels/state_rows.h"

namespace sf {
namespace {

// One row: S [key_dim][Runs * kLanes] changes, y gets the outputs of these columns.
template <int Runs>
void step(float* state, int64_t key_dim, const float* q, const float* k, const float* v, float decay, float beta,
          float* y) {
  constexpr int64_t kWidth = Runs * kLanes;
  Lanes held[Runs], change[Runs], sum[Runs];
  for (int run = 0; run < Runs; ++run) held[run] = sum[run] = zero();
  for (int64_t i = 0; i < key_dim; ++i) {
    const Lanes key = set1(k[i]);
    for (int run = 0; run < Runs; ++run) held[run] = fma(key, load(state + i * kWidth + run * kLanes), held[run]);
  }
  const Lanes fade = set1(decay), rate = set1(beta);
  for (int run = 0; run < Runs; ++run) change[run] = mul(rate, sub(load(v + run * kLanes), mul(fade, held[run])));
  for (int64_t i = 0; i < key_dim; ++i) {
    const Lanes key = set1(k[i]), query = set1(q[i]);
    for (int run = 0; run < Runs; ++run) {
      float* at = state + i * kWidth + run * kLanes;
      const Lanes changed = fma(key, change[run], mul(fade, load(at)));
      store(at, changed);
      sum[run] = fma(query, changed, sum[run]);
    }
  }
  for (int run = 0; run < Runs; ++run) store(y + run * kLanes, sum[run]);
}

template <int Runs>
void delta_row(const sf_delta_rule_args& args, const StateColumns<Runs>& columns, int64_t row) {
  const int64_t key_head = args.tiled ? columns.head % args.key_heads : columns.head / (args.heads / args.key_heads);
  const int64_t qk = row * args.qkv_stride + key_head * args.key_dim;
  const int64_t value = columns.head * args.value_dim + columns.first, gate = row * args.heads + columns.head;
  step<Runs>(columns.own, args.key_dim, args.q + qk, args.k + qk, args.v + row * args.qkv_stride + value,
             args.decay[gate], args.beta[gate], args.y + row * args.y_stride + value);
}

Error check_delta_rule(const sf_delta_rule_args& args) {
  SF_REQUIRE(args.q && args.k && args.v && args.decay && args.beta && args.y, kNullPointer);
  SF_REQUIRE(args.key_heads > 0 && args.heads % args.key_heads == 0, kBadShape);
  SF_REQUIRE(args.qkv_stride >= args.key_heads * args.key_dim, kBadShape);
  SF_REQUIRE(args.qkv_stride >= args.heads * args.value_dim && args.y_stride >= args.heads * args.value_dim, kBadShape);
  SF_REQUIRE(args.tiled == 0 || args.tiled == 1, kBadOption);
  return kOk;
}

}  // namespace

Error op_delta_rule(Context& context, sf_delta_rule_args& args) {
  const HeadStates states{args.state, args.heads, args.key_dim, args.value_dim};
  if (const Error error = check_state_rows(args.rows)) return error;
  if (const Error error = check_head_states(states)) return error;
  if (const Error error = check_delta_rule(args)) return error;
  pass_all(context, args.rows, states, [&](const auto& columns, int64_t row) { delta_row(args, columns, row); });
  return kOk;
}

}  // namespace sf
