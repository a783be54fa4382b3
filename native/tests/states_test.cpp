// Short convolution and the gated delta rule: chunks that load a slot or none, and save after some rows.
#include <initializer_list>

#include "core/ops.h"
#include "tests/testing.h"

using namespace testing;

namespace {

constexpr int64_t kRows = 40, kChunks = 3, kSlots = 5;

// Chunks of 1, 30 and 9 rows: the first from zeros, the others from slots 0 and 1; slots 2 to 4 are saved to.
struct Chunks {
  Chunks() : starts(kChunks + 1), loads(kChunks), saves(kRows) {
    starts[1] = 1, starts[2] = 31, starts[3] = kRows;
    loads[0] = -1, loads[1] = 0, loads[2] = 1;
    for (int64_t row = 0; row < kRows; ++row) saves[row] = -1;
    saves[0] = 2, saves[15] = 3, saves[kRows - 1] = 4;
  }
  sf_state_rows rows() const { return {starts.data(), loads.data(), saves.data(), kRows, kChunks, kSlots}; }
  Buffer<int64_t> starts, loads, saves;
};

void fill(Numbers& numbers, std::initializer_list<const Buffer<float>*> buffers) {
  for (const Buffer<float>* buffer : buffers) numbers.fill(*buffer);
}

}  // namespace

TEST(short_conv_all_parts) {
  for (const int64_t cols : {1, 16, 300})
    for (const bool extras : {false, true})
      same_for_all_threads(kSlots * 2 * cols, [&](Session& session, const Buffer<float>& state) {
        const Chunks chunks;
        Buffer<float> x(kRows * cols), gate(kRows * cols), weight(3 * cols), bias(cols), y(kRows * cols);
        Numbers numbers(3);
        fill(numbers, {&x, &gate, &weight, &bias, &state});
        sf_short_conv_args args{};
        args.rows = chunks.rows(), args.x = x.data(), args.weight = weight.data(), args.state = state.data();
        args.y = y.data(), args.cols = args.x_stride = args.y_stride = cols, args.taps = 3;
        if (extras) args.gate_in = args.gate_out = gate.data(), args.bias = bias.data(), args.silu = 1;
        CHECK(session.run("short_conv", args) == sf::kOk);
        args.taps = 1;
        CHECK(session.run("short_conv", args) == sf::kBadShape);
        args.taps = 3, chunks.saves[7] = kSlots;
        CHECK(session.run("short_conv", args) == sf::kOutOfRange);
        chunks.saves[7] = -1, chunks.loads[2] = kSlots;
        CHECK(session.run("short_conv", args) == sf::kOutOfRange);
      });
}

TEST(delta_rule_every_width) {
  constexpr int64_t kKeyHeads = 2, kHeads = 4, kKeyDim = 20;
  for (const int64_t value_dim : {16, 48, 112})
    for (const int32_t tiled : {0, 1})
      same_for_all_threads(kSlots * kHeads * kKeyDim * value_dim, [&](Session& session, const Buffer<float>& state) {
        const Chunks chunks;
        const int64_t keys = kKeyHeads * kKeyDim, stride = 2 * keys + kHeads * value_dim;
        Buffer<float> qkv(kRows * stride), a(kRows * kHeads), b(kRows * kHeads), rate(kHeads), bias(kHeads);
        Buffer<float> decay(kRows * kHeads), beta(kRows * kHeads), y(kRows * kHeads * value_dim);
        Numbers numbers(4);
        fill(numbers, {&qkv, &a, &b, &rate, &bias, &state});
        for (int64_t head = 0; head < kHeads; ++head) rate[head] = -1.0f;
        sf_delta_gates_args gates{a.data(),    b.data(), rate.data(), bias.data(), decay.data(),
                                  beta.data(), kRows,    kHeads,      kHeads,      kHeads};
        CHECK(session.run("delta_gates", gates) == sf::kOk);
        sf_delta_rule_args args{};
        args.rows = chunks.rows(), args.q = qkv.data(), args.k = qkv.data() + keys, args.v = qkv.data() + 2 * keys;
        args.decay = decay.data(), args.beta = beta.data(), args.state = state.data(), args.y = y.data();
        args.key_heads = kKeyHeads, args.heads = kHeads, args.key_dim = kKeyDim, args.value_dim = value_dim;
        args.qkv_stride = stride, args.y_stride = kHeads * value_dim, args.tiled = tiled;
        CHECK(session.run("delta_rule", args) == sf::kOk);
        args.value_dim = value_dim - 1;
        CHECK(session.run("delta_rule", args) == sf::kBadShape);
        args.value_dim = value_dim, args.tiled = 2;
        CHECK(session.run("delta_rule", args) == sf::kBadOption);
      });
}
