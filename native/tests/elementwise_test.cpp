// Norms, rotary embedding, activations and the rest that works on rows or flat arrays of floats.
#include "core/ops.h"
#include "tests/testing.h"

using namespace testing;

namespace {

constexpr int64_t kCols[] = {1, 15, 16, 17, 65, 200};
constexpr int64_t kManyRows = 600;  // enough for several tasks
constexpr int64_t kCounts[] = {1, 16, 33, 8192 + 8192 + 5};

}  // namespace

TEST(norm_all_outputs) {
  for (const int64_t cols : kCols)
    for (const int32_t kind : {0, 1})
      for (const bool extras : {false, true})
        same_for_all_threads(kManyRows * cols, [&](Session& session, const Buffer<float>& y) {
          Buffer<float> x(kManyRows * cols), residual(kManyRows * cols), h(kManyRows * cols), weight(cols), bias(cols);
          Numbers numbers(2);
          for (const auto* buffer : {&x, &residual, &weight, &bias}) numbers.fill(*buffer);
          Rows quantised(kManyRows, cols, 2, 0);
          sf_norm_args args{};
          args.x = x.data(), args.y = y.data(), args.weight = weight.data();
          args.rows = kManyRows, args.cols = cols, args.eps = 1e-5f, args.kind = kind, args.heads = 1;
          args.x_stride = args.residual_stride = args.h_stride = args.y_stride = cols;
          if (extras)
            args.residual = residual.data(), args.h = h.data(), args.bias = bias.data(),
            args.quantised = quantised.struct_;
          CHECK(session.run("norm", args) == sf::kOk);
        });
}

TEST(norm_quantised_alone) {
  same_for_all_threads<int8_t>(3 * 2 * 128, [](Session& session, const Buffer<int8_t>& values) {
    Buffer<float> x(3 * 70), residual(3 * 70);
    Numbers(4).fill(x);
    Numbers(5).fill(residual);
    Rows out(3, 70, 2, 0);
    sf_norm_args args{};
    args.x = x.data(), args.residual = residual.data(), args.quantised = out.struct_;
    args.rows = 3, args.cols = args.x_stride = args.residual_stride = 70, args.eps = 1e-6f, args.heads = 1;
    CHECK(session.run("norm", args) == sf::kOk);
    std::memcpy(values.data(), out.values.data(), values.size());
  });
}

TEST(norm_refuses_bad_arguments) {
  Session session(1);
  Buffer<float> x(10), y(10);
  sf_norm_args args{};
  args.heads = 1;
  args.rows = 1, args.cols = args.x_stride = args.y_stride = 10;
  CHECK(session.run("norm", args) == sf::kNullPointer);
  args.x = x.data();
  CHECK(session.run("norm", args) == sf::kNullPointer);
  args.y = y.data(), args.kind = 2;
  CHECK(session.run("norm", args) == sf::kBadOption);
  args.kind = 0, args.x_stride = 9;
  CHECK(session.run("norm", args) == sf::kBadShape);
}

TEST(rope_both_pairings_and_part_of_a_head) {
  constexpr int64_t kRows = 40, kHeads = 3, kHeadDim = 38;
  for (const int64_t pairs : {1, 8, 17, 19})
    for (const int32_t pairing : {0, 1})
      same_for_all_threads(kRows * kHeads * kHeadDim, [&](Session& session, const Buffer<float>& x) {
        Buffer<int64_t> positions(kRows);
        Buffer<float> inv_freq(pairs), cosines(kRows * pairs), sines(kRows * pairs);
        for (int64_t row = 0; row < kRows; ++row) positions[row] = row * 1001;
        for (int64_t i = 0; i < pairs; ++i) inv_freq[i] = 1.0f / static_cast<float>(i + 1);
        Numbers(8).fill(x);
        sf_rope_table_args table{
            positions.data(), inv_freq.data(), cosines.data(), sines.data(), nullptr, kRows, pairs, 1.0f, 0};
        CHECK(session.run("rope_table", table) == sf::kOk);
        sf_rope_args args{x.data(), cosines.data(), sines.data(),      kRows,   kHeads,
                          kHeadDim, pairs,          kHeads * kHeadDim, pairing, 0};
        CHECK(session.run("rope", args) == sf::kOk);
        args.pairs = 20;
        CHECK(session.run("rope", args) == sf::kBadShape);
        args.pairs = pairs, args.pairing = 2;
        CHECK(session.run("rope", args) == sf::kBadOption);
      });
}

TEST(glu_every_kind) {
  for (const int64_t cols : kCols)
    for (const int32_t kind : {0, 1, 2, 3, 4, 5})
      same_for_all_threads(kManyRows * cols, [&](Session& session, const Buffer<float>& y) {
        Buffer<float> gate(kManyRows * cols), up(kManyRows * cols);
        Numbers(9).fill(gate);
        Numbers(10).fill(up);
        Rows quantised(kManyRows, cols, 1, 64);
        sf_glu_args args{gate.data(), up.data(), y.data(), {},   kManyRows, cols, cols,
                         cols,        cols,      kind,     7.0f, 1.702f,    0};
        CHECK(session.run("glu", args) == sf::kOk);
        args.quantised = quantised.struct_, args.y = nullptr;
        CHECK(session.run("glu", args) == sf::kOk);
        args.kind = 9;
        CHECK(session.run("glu", args) == sf::kBadOption);
      });
}

TEST(elementary_functions) {
  for (const int64_t count : kCounts)
    for (int32_t function = 0; function < 7; ++function)
      same_for_all_threads(count, [&](Session& session, const Buffer<float>& y) {
        Buffer<float> x(count);
        Numbers(11).fill(x);
        sf_elementary_args args{x.data(), y.data(), count, function, 0};
        CHECK(session.run("elementary", args) == sf::kOk);
        args.function = 7;
        CHECK(session.run("elementary", args) == sf::kBadOption);
      });
}

// The ends of the float range: an integer conversion out of range would be undefined.
TEST(elementary_extremes) {
  Session session(1);
  constexpr float kInfinity = __builtin_inff(), kMost = 3.4028235e38f;
  const float extremes[] = {0.0f,  -0.0f,  kInfinity, -kInfinity, __builtin_nanf(""),
                            kMost, -kMost, 1e-45f,    -1e-45f,    1e-38f};
  constexpr int64_t kCount = sizeof(extremes) / sizeof(extremes[0]);
  Buffer<float> x(kCount), y(kCount);
  std::memcpy(x.data(), extremes, sizeof(extremes));
  for (int32_t function = 0; function < 7; ++function) {
    sf_elementary_args args{x.data(), y.data(), kCount, function, 0};
    CHECK(session.run("elementary", args) == sf::kOk);
  }
  sf_quantise_args quantise{x.data(), 1, kCount, kCount, {}};
  Rows out(1, kCount, 2, 0);
  quantise.out = out.struct_;
  CHECK(session.run("quantise", quantise) == sf::kOk);
}

TEST(softcap_and_add) {
  for (const int64_t count : kCounts)
    same_for_all_threads(count, [&](Session& session, const Buffer<float>& y) {
      Buffer<float> a(count), b(count);
      Numbers(12).fill(a);
      Numbers(13).fill(b);
      sf_add_args add{a.data(), b.data(), y.data(), count, 0.5f, 0};
      CHECK(session.run("add", add) == sf::kOk);
      sf_softcap_args softcap{y.data(), y.data(), count, 30.0f, 0};
      CHECK(session.run("softcap", softcap) == sf::kOk);
      softcap.cap = 0;
      CHECK(session.run("softcap", softcap) == sf::kBadOption);
      add.y = nullptr;
      CHECK(session.run("add", add) == sf::kNullPointer);
    });
}

TEST(embed_first_and_last_row) {
  constexpr int64_t kRows = 4, kVocab = 9;
  for (const int64_t cols : kCols)
    for (const int32_t dtype : {0, 1})
      same_for_all_threads(kRows * cols, [&](Session& session, const Buffer<float>& y) {
        Buffer<int64_t> ids(kRows);
        ids[0] = kVocab - 1, ids[1] = 0, ids[2] = 3, ids[3] = kVocab - 1;
        Buffer<float> wide(dtype == 0 ? kVocab * cols : 1);
        Buffer<uint16_t> narrow(dtype == 1 ? kVocab * cols : 1);
        Numbers(14).fill(wide);
        const void* table = dtype == 0 ? static_cast<const void*>(wide.data()) : narrow.data();
        sf_embed_args args{ids.data(), table, y.data(), kRows, kVocab, cols, cols, dtype, 2.0f};
        CHECK(session.run("embed", args) == sf::kOk);
        ids[2] = kVocab;
        CHECK(session.run("embed", args) == sf::kOutOfRange);
        ids[2] = -1;
        CHECK(session.run("embed", args) == sf::kOutOfRange);
      });
}

TEST(row_spread) {
  for (const int64_t cols : {1, 16, 100})
    same_for_all_threads(7 * cols, [&](Session& session, const Buffer<float>& y) {
      Buffer<float> x(7 * cols);
      Numbers(5).fill(x);
      Numbers(6).fill(y);
      sf_match_rms_args match{x.data(), y.data(), 7, cols, cols, cols, 1e-5f, 0};
      CHECK(session.run("match_rms", match) == sf::kOk);
      sf_sparsify_args sparsify{y.data(), 7, cols, cols, 0.5f, 0};
      CHECK(session.run("sparsify", sparsify) == sf::kOk);
      match.least = 0, sparsify.x_stride = cols - 1;
      CHECK(session.run("match_rms", match) == sf::kBadOption);
      CHECK(session.run("sparsify", sparsify) == sf::kBadShape);
    });
}
