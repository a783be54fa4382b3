#include "kernels/sample.h"

#include "core/check.h"
#include "core/context.h"

namespace sf {
using namespace sampling;
namespace {

// One thread's scratch, in keys: the keys themselves, then two arrays of a float per block, whole lanes long.
int64_t block_floats(int64_t vocab) { return divide_up(num_blocks(vocab), kLanes) * kLanes; }
int64_t scratch_keys(int64_t vocab) { return vocab + block_floats(vocab); }

SampleScratch scratch_of(Context& context, int thread, int64_t vocab) {
  auto* keys = context.scratch[thread].get<uint64_t>(scratch_keys(vocab));
  auto* floats = reinterpret_cast<float*>(keys + vocab);
  return {floats, floats + block_floats(vocab), keys};
}

Error check_logits(const float* logits, int64_t rows, int64_t vocab, int64_t stride) {
  SF_REQUIRE(logits, kNullPointer);
  SF_REQUIRE(rows >= 0 && vocab > 0 && vocab < (int64_t(1) << 31) && stride >= vocab, kBadShape);
  return kOk;
}

// body(row, r) with the row's largest logits found.
template <class Body>
void each_row(Context& context, const float* logits, int64_t rows, int64_t vocab, int64_t stride, const Body& body) {
  reserve_scratch<uint64_t>(context, scratch_keys(vocab));
  context.pool.run(rows, [&](int64_t r, int thread) {
    Row row{logits + r * stride, vocab, 0.0f, 1.0f, scratch_of(context, thread, vocab)};
    find_most(row);
    body(row, r);
  });
}

}  // namespace

Error op_sample(Context& context, sf_sample_args& args) {
  if (const Error error = check_logits(args.logits, args.rows, args.vocab, args.logits_stride)) return error;
  SF_REQUIRE(args.temperature && args.top_p && args.min_p && args.top_k, kNullPointer);
  SF_REQUIRE(args.seeds && args.positions && args.tokens, kNullPointer);
  for (int64_t r = 0; r < args.rows; ++r)
    SF_REQUIRE(args.temperature[r] >= 0.0f && args.temperature[r] <= kMostTemperature, kBadOption);
  each_row(context, args.logits, args.rows, args.vocab, args.logits_stride, [&](Row& row, int64_t r) {
    const bool valid = finite(row.most);
    const int64_t token = args.tokens[r] = valid ? choose(row, args, r) : -1;
    if (!args.logprobs) return;
    args.logprobs[r] =
        valid ? (row.x[token] - row.most) - log_of(sum_of_exp(row.x, row.vocab, row.most)) : kMinusInfinity;
  });
  return kOk;
}

Error op_top_logprobs(Context& context, sf_top_logprobs_args& args) {
  if (const Error error = check_logits(args.logits, args.rows, args.vocab, args.logits_stride)) return error;
  SF_REQUIRE(args.ids && args.logprobs, kNullPointer);
  SF_REQUIRE(args.count > 0 && args.count <= args.vocab, kBadShape);
  each_row(context, args.logits, args.rows, args.vocab, args.logits_stride, [&](Row& row, int64_t r) {
    uint64_t* keys = row.scratch.keys;
    const int64_t found = gather_first(row, args.count);
    std::partial_sort(keys, keys + args.count, keys + found);
    const bool valid = finite(row.most);
    const float log_sum = valid ? log_of(sum_of_exp(row.x, row.vocab, row.most)) : 0.0f;
    for (int64_t j = r * args.count; j < (r + 1) * args.count; ++j, ++keys) {
      args.ids[j] = ranked_id(*keys);
      args.logprobs[j] = valid ? (ranked_value(*keys) - row.most) - log_sum : kMinusInfinity;
    }
  });
  return kOk;
}

}  // namespace sf
