#include "core/ops.h"
#include "tests/testing.h"

using namespace testing;

namespace {

struct Format {
  int32_t bits, limbs, group;
  bool offsets;
};
constexpr Format kFormats[] = {{8, 1, 0, false},  {8, 2, 32, false}, {8, 2, 64, true},
                               {4, 1, 16, false}, {4, 1, 32, true},  {4, 2, 32, false},
                               {4, 2, 64, true},  {4, 2, 16, false}, {4, 2, 128, true}};

// A packed matrix of numbers that any format can hold.
class Matrix {
 public:
  Matrix(Session& session, int64_t n, int64_t k, const Format& f)
      : packed_(sf_packed_bytes(n, k, f.bits, f.limbs, f.group, f.offsets, f.bits, 16)) {
    const int64_t groups = f.group ? (k + f.group - 1) / f.group : 0;
    Buffer<int8_t> codes(n * k), table(16);
    Buffer<int16_t> scales(n * groups), offsets(n * groups);
    Buffer<float> row_scales(n);
    Numbers numbers(static_cast<uint32_t>(n * k));
    for (int64_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<int8_t>(f.bits == 4 ? numbers.below(16) : numbers.below(255) - 127);
    // A linear table, or (in groups of 16 and 128) one that must be looked up.
    for (int i = 0; i < 16; ++i) table[i] = static_cast<int8_t>((f.group == 16 || f.group == 128 ? 7 * i % 16 : i) - 8);
    for (int64_t i = 0; i < scales.size(); ++i) {
      scales[i] = static_cast<int16_t>(1 + numbers.below(f.limbs == 1 ? 12 : 1000));
      offsets[i] = static_cast<int16_t>(numbers.below(f.limbs == 1 ? 15 : 300));
    }
    for (int64_t i = 0; i < n; ++i) row_scales[i] = 0.01f;
    sf_pack_args args{codes.data(),
                      groups ? scales.data() : nullptr,
                      f.offsets ? offsets.data() : nullptr,
                      row_scales.data(),
                      f.bits == 4 ? table.data() : nullptr,
                      n,
                      k,
                      0,
                      n,
                      f.bits,
                      f.limbs,
                      f.group,
                      packed_.data(),
                      packed_.size()};
    CHECK(session.run("pack", args) == sf::kOk);
  }
  const void* data() const { return packed_.data(); }

 private:
  Lines<char> packed_;
};

void quantise(Session& session, int64_t rows, int64_t cols, const Rows& out) {
  Buffer<float> x(rows * cols);
  Numbers(3).fill(x);
  sf_quantise_args args{x.data(), rows, cols, cols, out.struct_};
  CHECK(session.run("quantise", args) == sf::kOk);
}

void check_threads(const Format& format, int64_t rows, int64_t n, int64_t k, int32_t limbs, int32_t group) {
  same_for_all_threads(rows * n, [&](Session& session, const Buffer<float>& y) {
    Matrix w(session, n, k, format);
    Rows x(rows, k, limbs, group);
    quantise(session, rows, k, x);
    Buffer<float> bias(n), residual(rows * n);
    Numbers(5).fill(bias);
    Numbers(6).fill(residual);
    sf_linear_args args{x.struct_, w.data(), bias.data(), residual.data(), y.data(), rows, k, n, n};
    CHECK(session.run("linear", args) == sf::kOk);
  });
}

}  // namespace

TEST(linear_odd_shapes_in_every_format) {
  for (const auto& format : kFormats)
    for (const int64_t rows : {1, 2, 4, 5, 7, 8, 12, 16, 19, 37}) {
      check_threads(format, rows, 33, 65, 2, 0);
      check_threads(format, rows, 7, 130, 1, 64);
    }
}

TEST(linear_longer_depth) {
  for (const auto& format : kFormats) {
    check_threads(format, 3, 70, 577, 2, 0);
    check_threads(format, 35, 70, 577, 1, 128);
  }
}

TEST(linear_several_chunks_and_blocks_of_rows) {
  for (const auto& format : kFormats) check_threads(format, 101, 40, 1100, 2, 0);
}

TEST(linear_experts_some_without_rows) {
  Session session(2);
  constexpr int64_t kRows = 17, kOutputs = 40, kCols = 70, kExperts = 4;
  Matrix a(session, kOutputs, kCols, kFormats[0]), b(session, kOutputs, kCols, kFormats[0]);
  Rows x(kRows, kCols, 2, 0);
  quantise(session, kRows, kCols, x);
  const void* weights[kExperts] = {a.data(), b.data(), a.data(), b.data()};
  Buffer<int64_t> starts(kExperts + 1);
  starts[1] = 4, starts[2] = 4, starts[3] = 5, starts[4] = kRows;
  Buffer<float> y(kRows * kOutputs), bias(kOutputs), want(kRows * kOutputs);
  const float* biases[kExperts] = {bias.data(), bias.data(), bias.data(), bias.data()};
  sf_linear_experts_args args{x.struct_, weights, biases, starts.data(), y.data(), kExperts, kCols, kOutputs};
  CHECK(session.run("linear_experts", args) == sf::kOk);
  sf_linear_args plain{x.struct_, a.data(), bias.data(), nullptr, want.data(), 4, kCols, kOutputs, 0};
  CHECK(session.run("linear", plain) == sf::kOk);
  CHECK(!std::memcmp(want.data(), y.data(), sizeof(float) * 4 * kOutputs));
  starts[2] = 3;
  CHECK(session.run("linear_experts", args) == sf::kOutOfRange);
}

TEST(embed_rows_of_packed_tables) {
  constexpr int64_t kVocab = 35, kWidth = 67, kRows = 3;
  for (const auto& format : kFormats)
    same_for_all_threads(kRows * kWidth, [&](Session& session, const Buffer<float>& y) {
      Matrix table(session, kVocab, kWidth, format);
      Buffer<int64_t> ids(kRows);
      ids[0] = kVocab - 1, ids[2] = 16;
      sf_embed_args args{ids.data(), table.data(), y.data(), kRows, kVocab, kWidth, kWidth, 2, 1.0f};
      CHECK(session.run("embed", args) == sf::kOk);
      args.cols = kWidth - 1;
      CHECK(session.run("embed", args) == sf::kBadPacked);
    });
}

TEST(linear_refuses_bad_arguments) {
  Session session(1);
  Matrix w(session, 10, 70, kFormats[0]);
  Rows x(2, 70, 2, 0);
  Buffer<float> y(20);
  const sf_linear_args good{x.struct_, w.data(), nullptr, nullptr, y.data(), 2, 70, 10, 0};
  auto code = [&](auto change) {
    sf_linear_args args = good;
    change(args);
    return session.run("linear", args);
  };
  Lines<char> junk(4096);
  CHECK(code([](auto&) {}) == sf::kOk);
  CHECK(code([](auto& a) { a.weights = nullptr; }) == sf::kBadPacked);
  CHECK(code([&](auto& a) { a.weights = junk.data(); }) == sf::kBadPacked);
  CHECK(code([](auto& a) { a.cols = 64; }) == sf::kBadShape);
  CHECK(code([](auto& a) { a.rows = -1; }) == sf::kBadShape);
  CHECK(code([](auto& a) { a.y_stride = 9; }) == sf::kBadShape);
  CHECK(code([](auto& a) { a.x.values += 1; }) == sf::kMisaligned);
  CHECK(sf_packed_bytes(0, 64, 8, 1, 0, 0, 8, 16) == -1);
  CHECK(sf_packed_bytes(64, 64, 7, 1, 0, 0, 7, 16) == -1);
  CHECK(sf_packed_bytes(64, 64, 8, 2, 0, 0, 8, 16) == -1);
  CHECK(sf_packed_bytes(64, 64, 8, 2, 32, 0, 4, 16) == -1);   // 8-bit codes have 5 or 6 bits, or 8
  CHECK(sf_packed_bytes(64, 64, 4, 2, 32, 0, 4, 8) == -1);    // no super-block
  CHECK(sf_packed_bytes(64, 512, 4, 2, 128, 0, 2, 8) == -1);  // groups too long for one
  CHECK(sf_packed_bytes(64, 512, 4, 2, 32, 0, 2, 4) == -1);   // nibbles without offsets
}

// Records of 34 bytes, a scale nobody reads here and 32 codes of 8 bits, as Q8_0 has them.
TEST(pack_blocks_from_a_file_s_records) {
  constexpr int64_t kOutputs = 35, kCols = 96, kRecord = 34, kStride = kCols / 32 * kRecord;
  Session session(2);
  Buffer<uint8_t> blocks(kOutputs * kStride);
  Buffer<float> scales(kOutputs * kCols / 32);
  Numbers numbers(5);
  for (int64_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<uint8_t>(numbers.below(256));
  for (int64_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f * static_cast<float>(1 + numbers.below(100));
  Lines<char> packed(sf_packed_bytes(kOutputs, kCols, 8, 2, 32, 0, 8, 16));
  sf_pack_blocks_args args{};
  args.blocks = blocks.data(), args.scales = scales.data(), args.packed = packed.data(),
  args.packed_bytes = packed.size();
  args.n = args.rows = kOutputs, args.k = kCols, args.row_stride = kStride;
  args.low = {2, 8, 32, 0};
  args.block = args.group = 32, args.block_bytes = kRecord, args.stretch = 1, args.width = 8, args.scale_bits = 16;
  args.span_low = -127.0f, args.span_high = 127.0f;
  CHECK(session.run("pack_blocks", args) == sf::kOk);
  Buffer<int64_t> ids(1);
  ids[0] = kOutputs - 1;
  Buffer<float> row(kCols);
  sf_embed_args embed{ids.data(), packed.data(), row.data(), 1, kOutputs, kCols, kCols, 2, 1.0f};
  CHECK(session.run("embed", embed) == sf::kOk);
  for (int64_t k = 0; k < kCols; ++k) {
    const int code = static_cast<int8_t>(blocks[(kOutputs - 1) * kStride + k / 32 * kRecord + 2 + k % 32]);
    const float want = scales[(kOutputs - 1) * kCols / 32 + k / 32] * static_cast<float>(code < -127 ? -127 : code);
    const float error = row[k] - want;
    CHECK(error < 0.02f && error > -0.02f);  // a unit of the row's grid is at most 127 / 16256
  }
  args.packed_bytes -= 1;
  CHECK(session.run("pack_blocks", args) == sf::kBadShape);
}

// Codes in blocks of 256 bytes, packed at every width, with scales as products: all threads and all numbers of rows
// read the same weights, and nothing beyond them.
TEST(linear_narrow_codes_and_scales) {
  struct Narrow {
    int32_t bits, width, scale_bits, group;
    bool offsets;
  };
  constexpr Narrow kNarrow[] = {{4, 1, 16, 64, false}, {4, 2, 4, 16, true},   {4, 3, 8, 16, false}, {4, 4, 8, 32, true},
                                {8, 5, 8, 32, true},   {8, 5, 16, 32, false}, {8, 6, 8, 16, false}};
  constexpr int64_t kOutputs = 40, kCols = 512, kSupers = kCols / 256;
  for (const auto& f : kNarrow)
    for (const int64_t rows : {1, 3, 8, 37})
      for (const int32_t limbs : {2, 1})
        same_for_all_threads(rows * kOutputs, [&](Session& session, const Buffer<float>& y) {
          const int64_t groups = kCols / f.group;
          Buffer<uint8_t> blocks(kOutputs * kCols);
          Buffer<uint16_t> halves(kOutputs * kSupers);
          Buffer<int8_t> integers(kOutputs * groups), table(16);
          Buffer<float> scales(kOutputs * groups);
          Numbers numbers(9);
          for (int64_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<uint8_t>(numbers.below(1 << f.width));
          for (int64_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(0x2000 + numbers.below(0x1000));
          for (int64_t i = 0; i < integers.size(); ++i) integers[i] = static_cast<int8_t>(numbers.below(16));
          for (int64_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f;
          for (int i = 0; i < 16; ++i) table[i] = static_cast<int8_t>(i - 2);
          Lines<char> packed(sf_packed_bytes(kOutputs, kCols, f.bits, 2, f.group, f.offsets, f.width, f.scale_bits));
          sf_pack_blocks_args args{};
          args.blocks = blocks.data(), args.packed = packed.data(), args.packed_bytes = packed.size();
          if (f.scale_bits == 16) {
            args.scales = scales.data();
          } else {
            args.super_scales = halves.data(), args.group_scales = integers.data();
            if (f.offsets) args.super_offsets = halves.data(), args.group_offsets = integers.data();
          }
          args.table = f.bits == 4 ? table.data() : nullptr;
          args.n = args.rows = kOutputs, args.k = args.row_stride = kCols;
          args.low = {0, 8, 256, 0};
          args.block = args.block_bytes = 256, args.group = f.group, args.width = f.width;
          args.scale_bits = f.scale_bits, args.stretch = f.width == 5 ? 4 + f.offsets : f.width == 6 ? 2 : 1;
          args.add = f.bits == 8 ? -(1 << (f.width - 1)) : 0;
          args.span_low = -32.0f, args.span_high = 32.0f;
          CHECK(session.run("pack_blocks", args) == sf::kOk);
          Rows x(rows, kCols, limbs, limbs == 1 ? 64 : 0);
          quantise(session, rows, kCols, x);
          sf_linear_args linear{x.struct_, packed.data(), nullptr, nullptr, y.data(), rows, kCols, kOutputs, 0};
          CHECK(session.run("linear", linear) == sf::kOk);
          args.stretch = 3;
          CHECK((session.run("pack_blocks", args) == sf::kBadOption) == (f.bits == 8));
        });
}
