#include "kernels/kv.h"

#include <cstring>

#include "core/context.h"
#include "kernels/quantise.h"

namespace sf {
namespace {

constexpr int64_t kRowsPerTask = 16;

// dims / 4 words, each 64 bytes from the next: one token's column of a limb of keys.
void scatter_key(const int8_t* limb, int64_t dims, uint8_t* column) {
  for (int64_t quad = 0; quad < dims / 4; ++quad) {
    uint32_t word;
    std::memcpy(&word, limb + quad * 4, 4);
    word ^= 0x80808080u;
    std::memcpy(column + quad * 64, &word, 4);
  }
}

void scatter_value(const int8_t* limb, int64_t dims, uint8_t* column) {
  for (int64_t dim = 0; dim < dims; ++dim) column[dim * 4] = static_cast<uint8_t>(limb[dim]);
}

// Limb l of x at out + l * dims.
float quantise_token(const float* x, int64_t dims, int64_t limbs, int8_t* out) {
  float scale;
  if (limbs == 2) quantise_two_limbs(x, dims, out, dims, &scale);
  else quantise_one_limb(x, dims, out, dims, dims, &scale);
  return scale;
}

void write_integers(const KvLayout& l, uint8_t* group, int64_t token, const float* key, const float* value) {
  int8_t limbs[2 * kMaxHeadDim];
  float* scales = reinterpret_cast<float*>(group + l.scales_at);
  scales[token] = quantise_token(key, l.head_dim, l.key_limbs, limbs);
  for (int64_t limb = 0; limb < l.key_limbs; ++limb)
    scatter_key(limbs + limb * l.head_dim, l.head_dim, group + limb * l.head_dim * kGroupTokens + token * 4);
  scales[kGroupTokens + token] = quantise_token(value, l.value_dim, l.value_limbs, limbs);
  uint8_t* values = group + l.values_at + token / 4 * l.value_dim * 4 + token % 4;
  for (int64_t limb = 0; limb < l.value_limbs; ++limb)
    scatter_value(limbs + limb * l.value_dim, l.value_dim, values + limb * l.value_dim * kGroupTokens);
}

void narrow(const float* x, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    const auto half = static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
    std::memcpy(out + 2 * i, &half, 2);
  }
}

void write_bfloat16(const KvLayout& l, uint8_t* group, int64_t token, const float* key, const float* value) {
  narrow(key, l.head_dim, group + token * l.head_dim * 2);
  narrow(value, l.value_dim, group + l.values_at + token * l.value_dim * 2);
}

}  // namespace

Error op_kv_write(Context& context, sf_kv_write_args& args) {
  const sf_kv_cache& cache = args.cache;
  if (const Error error = check_kv(cache)) return error;
  SF_REQUIRE(args.rows >= 0, kBadShape);
  SF_REQUIRE(args.rows == 0 || (args.keys && args.values && args.slots), kNullPointer);
  SF_REQUIRE(args.keys_stride >= cache.kv_heads * cache.head_dim, kBadShape);
  SF_REQUIRE(args.values_stride >= cache.kv_heads * cache.value_dim, kBadShape);
  for (int64_t row = 0; row < args.rows; ++row)
    SF_REQUIRE(args.slots[row] < cache.num_blocks * cache.block_size, kOutOfRange);

  const KvLayout layout = kv_layout(cache);
  const auto write = cache.form == kBfloat16 ? write_bfloat16 : write_integers;
  // A task owns some rows of one head. Rows of one call have slots of their own, so no byte has two writers.
  context.pool.run(divide_up(args.rows, kRowsPerTask) * cache.kv_heads, [&](int64_t task, int) {
    const int64_t head = task % cache.kv_heads, start = task / cache.kv_heads * kRowsPerTask;
    for (int64_t row = start; row < args.rows && row < start + kRowsPerTask; ++row) {
      const int64_t slot = args.slots[row];
      if (slot < 0) continue;
      const int64_t place = slot % cache.block_size;
      uint8_t* group =
          kv_record(cache, layout, slot / cache.block_size, head) + place / kGroupTokens * layout.group_bytes;
      write(layout, group, place % kGroupTokens, args.keys + row * args.keys_stride + head * cache.head_dim,
            args.values + row * args.values_stride + head * cache.value_dim);
    }
  });
  return kOk;
}

// Pairs are copied in order. A task owns one head of every block, so the order holds for any number of threads.
Error op_kv_copy(Context& context, sf_kv_copy_args& args) {
  const sf_kv_cache& cache = args.cache;
  if (const Error error = check_kv(cache)) return error;
  SF_REQUIRE(args.count >= 0, kBadShape);
  SF_REQUIRE(args.count == 0 || args.pairs, kNullPointer);
  for (int64_t i = 0; i < 2 * args.count; ++i)
    SF_REQUIRE(args.pairs[i] >= 0 && args.pairs[i] < cache.num_blocks, kOutOfRange);
  const KvLayout layout = kv_layout(cache);
  context.pool.run(cache.kv_heads, [&](int64_t head, int) {
    for (int64_t i = 0; i < args.count; ++i) {
      const int64_t from = args.pairs[2 * i], to = args.pairs[2 * i + 1];
      if (from != to)
        std::memcpy(kv_record(cache, layout, to, head), kv_record(cache, layout, from, head), layout.record_bytes);
    }
  });
  return kOk;
}

}  // namespace sf

extern "C" int64_t sf_kv_record_bytes(const sf_kv_cache* cache) {
  if (const sf::Error error = sf::check_kv_shape(*cache)) return -int64_t(error);
  return sf::kv_layout(*cache).record_bytes;
}
