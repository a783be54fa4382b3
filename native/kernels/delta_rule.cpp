// The gated delta rule. A head's state S is a matrix [key_dim][value_dim]; its columns never meet, so that the order of
// additions is that of the key's lanes, for any number of columns at once. For each row, with sums in ascending i:
//   m = sum of fma(k[i], S[i], m)                      what the state holds for the key
//   d = beta (v - decay m)                             what is to change
//   S[i] = fma(k[i], d, decay S[i]),  y = sum of fma(q[i], S[i], y)
#include <algorithm>
#include <cstring>

#include "core/context.h"
#include "core/sizes.h"
#include "kernels/state_rows.h"
#include "lanes.h"

namespace sf {
namespace {

constexpr int kMaxRuns = 4;  // Lanes side by side: 64 columns of 128 rows stay in the first-level cache
constexpr int64_t kMaxKeyDim = 512;

struct Columns {
  int64_t chunk, head, first;  // of the head's columns
};

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
void run_columns(const sf_delta_rule_args& args, const Columns& own, float* state) {
  constexpr int64_t kWidth = Runs * kLanes, kBytes = kWidth * int64_t(sizeof(float));
  const int64_t key_head = args.tiled ? own.head % args.key_heads : own.head / (args.heads / args.key_heads);
  const auto place = [&](int64_t slot) {
    return args.state + (slot * args.heads + own.head) * args.key_dim * args.value_dim + own.first;
  };
  const int64_t load_slot = args.rows.loads[own.chunk];
  if (load_slot < 0) std::memset(state, 0, args.key_dim * kBytes);
  else
    for (int64_t i = 0; i < args.key_dim; ++i)
      std::memcpy(state + i * kWidth, place(load_slot) + i * args.value_dim, kBytes);
  for (int64_t row = args.rows.starts[own.chunk]; row < args.rows.starts[own.chunk + 1]; ++row) {
    const int64_t qk = row * args.qkv_stride + key_head * args.key_dim, value = own.head * args.value_dim + own.first;
    step<Runs>(state, args.key_dim, args.q + qk, args.k + qk, args.v + row * args.qkv_stride + value,
               args.decay[row * args.heads + own.head], args.beta[row * args.heads + own.head],
               args.y + row * args.y_stride + value);
    if (const int64_t slot = args.rows.saves[row]; slot >= 0)
      for (int64_t i = 0; i < args.key_dim; ++i)
        std::memcpy(place(slot) + i * args.value_dim, state + i * kWidth, kBytes);
  }
}

void run_columns(const sf_delta_rule_args& args, const Columns& own, float* state) {
  switch (std::min<int64_t>(kMaxRuns, (args.value_dim - own.first) / kLanes)) {
    case 1:
      return run_columns<1>(args, own, state);
    case 2:
      return run_columns<2>(args, own, state);
    case 3:
      return run_columns<3>(args, own, state);
    default:
      return run_columns<4>(args, own, state);
  }
}

Error check_delta_rule(const sf_delta_rule_args& args) {
  if (const Error error = check_state_rows(args.rows)) return error;
  SF_REQUIRE(args.q && args.k && args.v && args.decay && args.beta && args.state && args.y, kNullPointer);
  SF_REQUIRE(args.key_heads > 0 && args.heads > 0 && args.heads % args.key_heads == 0, kBadShape);
  SF_REQUIRE(args.key_dim > 0 && args.key_dim <= kMaxKeyDim, kBadShape);
  SF_REQUIRE(args.value_dim > 0 && args.value_dim % kLanes == 0, kBadShape);
  SF_REQUIRE(args.qkv_stride >= args.key_heads * args.key_dim, kBadShape);
  SF_REQUIRE(args.qkv_stride >= args.heads * args.value_dim && args.y_stride >= args.heads * args.value_dim, kBadShape);
  SF_REQUIRE(args.tiled == 0 || args.tiled == 1, kBadOption);
  return kOk;
}

}  // namespace

// A task owns some columns of a head in one chunk: they stay in the cache while the chunk's rows pass.
Error op_delta_rule(Context& context, sf_delta_rule_args& args) {
  if (const Error error = check_delta_rule(args)) return error;
  const int64_t width = kMaxRuns * kLanes, blocks = divide_up(args.value_dim, width);
  reserve_scratch<float>(context, args.key_dim * width);
  context.pool.run(args.rows.chunks * args.heads * blocks, [&](int64_t task, int thread) {
    const Columns own{task / blocks / args.heads, task / blocks % args.heads, task % blocks * width};
    run_columns(args, own, context.scratch[thread].get<float>(args.key_dim * width));
  });
  return kOk;
}

}  // namespace sf
