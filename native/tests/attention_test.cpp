// Writing and copying keys and values, and attention over them.
#include "core/ops.h"
#include "tests/testing.h"

using namespace testing;

namespace {

// A cache whose last block is used to its last token, with random keys and values in every slot.
class Cache {
 public:
  Cache(Session& session, int64_t blocks, int64_t heads, int64_t head_dim, int64_t value_dim, int32_t form)
      : shape_{nullptr, blocks, 16, heads, head_dim, value_dim, form, 0}, data_(bytes(shape_)) {
    shape_.data = data_.data();
    const int64_t rows = blocks * shape_.block_size;
    Buffer<float> keys(rows * heads * head_dim), values(rows * heads * value_dim);
    Buffer<int64_t> slots(rows);
    Numbers(40).fill(keys);
    Numbers(41).fill(values);
    for (int64_t row = 0; row < rows; ++row) slots[row] = rows - 1 - row;
    sf_kv_write_args args{shape_, keys.data(), values.data(), slots.data(), rows, heads * head_dim, heads * value_dim};
    CHECK(session.run("kv_write", args) == sf::kOk);
    slots[0] = rows;
    CHECK(session.run("kv_write", args) == sf::kOutOfRange);
  }
  const sf_kv_cache& shape() const { return shape_; }

 private:
  static int64_t bytes(const sf_kv_cache& shape) {
    const int64_t record = sf_kv_record_bytes(&shape);
    CHECK(record > 0);
    return record * shape.num_blocks * shape.kv_heads;
  }
  sf_kv_cache shape_;
  Lines<uint8_t> data_;
};

struct Case {
  int64_t kv_heads, group, head_dim, value_dim, window;
  float softcap;
  bool sinks, slopes;
};
constexpr int64_t kAhead = -(int64_t(1) << 32);
constexpr Case kCases[] = {{1, 1, 16, 16, 0, 0.0f, false, false},   {2, 3, 64, 64, 0, 0.0f, true, false},
                           {1, 4, 80, 48, 33, 20.0f, false, false}, {2, 1, 128, 128, 7, 0.0f, true, false},
                           {1, 2, 32, 32, -9, 0.0f, false, false},  {1, 3, 48, 48, kAhead, 0.0f, true, false},
                           {2, 2, 64, 64, kAhead, 0.0f, true, true}};

// A whole prompt, a chunk in the middle, one token, none, and one token at the start; tables point to shared blocks.
void attend(const Case& c, int32_t form) {
  constexpr int64_t kBlocks = 12, kChunks = 5, kTable = 10, kRows = 37 + 20 + 1 + 0 + 1;
  const int64_t heads = c.kv_heads * c.group;
  same_for_all_threads(kRows * heads * c.value_dim, [&](Session& session, const Buffer<float>& y) {
    Cache cache(session, kBlocks, c.kv_heads, c.head_dim, c.value_dim, form);
    Buffer<int64_t> starts(kChunks + 1), lengths(kChunks), table(kChunks * kTable);
    const int64_t tokens[kChunks] = {37, 20, 1, 0, 1}, totals[kChunks] = {37, 131, 160, 50, 1};
    for (int64_t i = 0; i < kChunks; ++i) starts[i + 1] = starts[i] + tokens[i], lengths[i] = totals[i];
    for (int64_t i = 0; i < table.size(); ++i) table[i] = (i * 7) % kBlocks;
    Buffer<float> q(kRows * heads * c.head_dim), sinks(heads), slopes(heads);
    Numbers(42).fill(q);
    Numbers(43).fill(sinks);
    Numbers(45).fill(slopes);
    sf_attention_args args{cache.shape(),
                           q.data(),
                           y.data(),
                           starts.data(),
                           lengths.data(),
                           table.data(),
                           c.sinks ? sinks.data() : nullptr,
                           c.slopes ? slopes.data() : nullptr,
                           kChunks,
                           heads,
                           heads * c.head_dim,
                           heads * c.value_dim,
                           kTable,
                           c.window,
                           0.125f,
                           c.softcap,
                           0,
                           0};
    CHECK(session.run("attention", args) == sf::kOk);
    args.fixed = 1;
    CHECK(session.run("attention", args) == (c.window > 0 ? sf::kOk : sf::kBadOption));
    args.fixed = 0, args.softcap = 1.0f;
    CHECK(session.run("attention", args) == (c.slopes ? sf::kBadOption : sf::kOk));
    args.softcap = c.softcap;
    lengths[2] = 161;
    CHECK(session.run("attention", args) == sf::kBadShape);
    lengths[2] = 160, table[2 * kTable + 9] = kBlocks;
    CHECK(session.run("attention", args) == sf::kOutOfRange);
  });
}

}  // namespace

TEST(attention_two_limb_keys) {
  for (const auto& c : kCases) attend(c, 0);
}
TEST(attention_int8) {
  for (const auto& c : kCases) attend(c, 1);
}
TEST(attention_two_limbs) {
  for (const auto& c : kCases) attend(c, 2);
}
TEST(attention_bfloat16) {
  for (const auto& c : kCases) attend(c, 3);
}

TEST(attention_over_several_segments) {
  for (const int32_t form : {0, 3})
    same_for_all_threads(3 * 2 * 32, [&](Session& session, const Buffer<float>& y) {
      constexpr int64_t kBlocks = 70, kLength = kBlocks * 16;
      Cache cache(session, kBlocks, 1, 32, 32, form);
      Buffer<int64_t> starts(2), lengths(1), table(kBlocks);
      starts[1] = 3, lengths[0] = kLength;
      for (int64_t i = 0; i < kBlocks; ++i) table[i] = kBlocks - 1 - i;
      Buffer<float> q(3 * 2 * 32);
      Numbers(44).fill(q);
      sf_attention_args args{cache.shape(),
                             q.data(),
                             y.data(),
                             starts.data(),
                             lengths.data(),
                             table.data(),
                             nullptr,
                             nullptr,
                             1,
                             2,
                             64,
                             64,
                             kBlocks,
                             0,
                             0.2f,
                             0.0f,
                             0,
                             0};
      CHECK(session.run("attention", args) == sf::kOk);
    });
}

TEST(kv_copy_and_bad_caches) {
  Session session(2);
  Cache cache(session, 3, 2, 32, 16, 0);
  Buffer<int64_t> pairs(4);
  pairs[0] = 2, pairs[1] = 0, pairs[2] = 1, pairs[3] = 1;
  sf_kv_copy_args args{cache.shape(), pairs.data(), 2};
  CHECK(session.run("kv_copy", args) == sf::kOk);
  const int64_t record = sf_kv_record_bytes(&cache.shape());
  CHECK(!std::memcmp(cache.shape().data, cache.shape().data + 2 * 2 * record, 2 * record));
  pairs[3] = 3;
  CHECK(session.run("kv_copy", args) == sf::kOutOfRange);
  auto refused = [&](auto change) {
    sf_kv_cache bad = cache.shape();
    change(bad);
    return sf_kv_record_bytes(&bad) < 0;
  };
  CHECK(refused([](auto& c) { c.form = 4; }));
  CHECK(refused([](auto& c) { c.head_dim = 20; }));
  CHECK(refused([](auto& c) { c.block_size = 8; }));
  CHECK(refused([](auto& c) { c.kv_heads = 0; }));
}
