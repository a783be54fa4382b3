// Short convolution, the gated delta rule and Mamba-2's scan: chunks that load a slot or none, and save after some
// rows.
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
        sf_delta_gates_args gates{a.data(), b.data(), rate.data(), bias.data(), decay.data(), beta.data(),
                                  kRows,    kHeads,   kHeads,      kHeads,      kHeads};
        CHECK(session.run("delta_gates", gates) == sf::kOk);
        sf_delta_rule_args args{};
        args.rows = chunks.rows(), args.q = qkv.data(), args.k = qkv.data() + keys, args.v = qkv.data() + 2 * keys;
        args.decay = decay.data(), args.beta = beta.data(), args.state = state.data(), args.y = y.data();
        args.key_heads = kKeyHeads, args.heads = kHeads, args.key_dim = kKeyDim, args.value_dim = value_dim;
        args.qkv_stride = stride, args.y_stride = kHeads * value_dim, args.tiled = tiled;
        CHECK(session.run("delta_rule", args) == sf::kOk);
        Buffer<float> lanes(kRows * kHeads * kKeyDim);
        for (int64_t i = 0; i < lanes.size(); ++i) lanes[i] = 0.5f;
        args.decay = lanes.data(), args.by_lane = 1;
        CHECK(session.run("delta_rule", args) == sf::kOk);
        args.value_dim = value_dim - 1;
        CHECK(session.run("delta_rule", args) == sf::kBadShape);
        args.value_dim = value_dim, args.tiled = 2;
        CHECK(session.run("delta_rule", args) == sf::kBadOption);
        args.tiled = tiled, args.by_lane = 2;
        CHECK(session.run("delta_rule", args) == sf::kBadOption);
      });
}

TEST(ssd_scan_every_width) {
  constexpr int64_t kGroups = 2, kHeads = 4, kStateDim = 20;
  for (const int64_t head_dim : {16, 48, 112})
    same_for_all_threads(kSlots * kHeads * kStateDim * head_dim, [&](Session& session, const Buffer<float>& state) {
      const Chunks chunks;
      const int64_t inner = kHeads * head_dim, lanes = kGroups * kStateDim, stride = inner + 2 * lanes;
      Buffer<float> x(kRows * stride), raw(kRows * kHeads), rate(kHeads), bias(kHeads), skip(kHeads);
      Buffer<float> decay(kRows * kHeads), dt(kRows * kHeads), y(kRows * inner);
      Numbers numbers(5);
      fill(numbers, {&x, &raw, &rate, &bias, &skip, &state});
      for (int64_t head = 0; head < kHeads; ++head) rate[head] = -1.0f;
      sf_ssd_gates_args gates{raw.data(), rate.data(), bias.data(), decay.data(), dt.data(), kRows, kHeads, kHeads};
      CHECK(session.run("ssd_gates", gates) == sf::kOk);
      sf_ssd_scan_args args{};
      args.rows = chunks.rows(), args.x = x.data(), args.b = x.data() + inner, args.c = x.data() + inner + lanes;
      args.decay = decay.data(), args.dt = dt.data(), args.skip = skip.data(), args.state = state.data();
      args.y = y.data(), args.groups = kGroups, args.heads = kHeads, args.state_dim = kStateDim;
      args.head_dim = head_dim, args.x_stride = stride, args.y_stride = inner;
      CHECK(session.run("ssd_scan", args) == sf::kOk);
      args.groups = 3;
      CHECK(session.run("ssd_scan", args) == sf::kBadShape);
      args.groups = kGroups, args.head_dim = head_dim - 1;
      CHECK(session.run("ssd_scan", args) == sf::kBadShape);
    });
}

TEST(gated_norm_in_groups) {
  for (const int64_t cols : {6, 96, 700})
    for (const int64_t groups : {1, 2})
      same_for_all_threads(kRows * cols, [&](Session& session, const Buffer<float>& y) {
        Buffer<float> x(kRows * cols), gate(kRows * cols), weight(cols);
        Numbers numbers(6);
        fill(numbers, {&x, &gate, &weight});
        sf_gated_norm_args args{x.data(), gate.data(), weight.data(), y.data(), {},    kRows, cols,
                                groups,   cols,        cols,          cols,     1e-5f, 0};
        CHECK(session.run("gated_norm", args) == sf::kOk);
        args.groups = cols + 1;
        CHECK(session.run("gated_norm", args) == sf::kBadShape);
      });
}
