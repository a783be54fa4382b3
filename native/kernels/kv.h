// The bytes of a KV cache. A block's record for one kv head is a run of groups of 16 tokens, so that the block size
// never reaches the kernels. One group of the integer forms, every part a multiple of 64 bytes:
//   keys    per limb [head_dim / 4][16 tokens][4 dims], each byte the limb + 128 (unsigned: VNNI takes it from memory)
//   values  per limb [4][value_dim][4 tokens] int8: a 64-byte line is 16 dims of 4 tokens
//   scales  float32 [16] of the keys, then [16] of the values
// A token's key has one scale, and so has its value: two limbs or one, by the formulas of kernels/quantise.h.
// A group of the bfloat16 form: keys [16][head_dim], then values [16][value_dim], rounded to nearest even.
#pragma once
#include <initializer_list>

#include "core/check.h"

namespace sf {

enum KvForm : int32_t { kKeysTwoLimbs = 0, kOneLimb = 1, kTwoLimbs = 2, kBfloat16 = 3 };

inline constexpr int64_t kGroupTokens = 16;
inline constexpr int64_t kMaxHeadDim = 576;

struct KvLayout {
  int64_t head_dim, value_dim;
  int64_t key_limbs, value_limbs;  // bytes per element
  int64_t values_at, scales_at;    // offsets in a group
  int64_t group_bytes, block_groups, record_bytes;
};

inline KvLayout kv_layout(const sf_kv_cache& cache) {
  KvLayout l;
  l.head_dim = cache.head_dim;
  l.value_dim = cache.value_dim;
  l.key_limbs = cache.form == kOneLimb ? 1 : 2;
  l.value_limbs = cache.form == kKeysTwoLimbs || cache.form == kOneLimb ? 1 : 2;
  l.values_at = l.key_limbs * l.head_dim * kGroupTokens;
  l.scales_at = l.values_at + l.value_limbs * l.value_dim * kGroupTokens;
  l.group_bytes = l.scales_at + (cache.form == kBfloat16 ? 0 : 2 * kGroupTokens * int64_t(sizeof(float)));
  l.block_groups = cache.block_size / kGroupTokens;
  l.record_bytes = l.block_groups * l.group_bytes;
  return l;
}

// Everything but the data pointer.
inline Error check_kv_shape(const sf_kv_cache& cache) {
  SF_REQUIRE(cache.form >= kKeysTwoLimbs && cache.form <= kBfloat16, kBadOption);
  SF_REQUIRE(cache.num_blocks >= 0 && cache.kv_heads > 0, kBadShape);
  SF_REQUIRE(cache.block_size > 0 && cache.block_size % kGroupTokens == 0, kBadShape);
  for (const int64_t dim : {cache.head_dim, cache.value_dim})
    SF_REQUIRE(dim > 0 && dim <= kMaxHeadDim && dim % 16 == 0, kBadShape);
  return kOk;
}

inline Error check_kv(const sf_kv_cache& cache) {
  if (const Error error = check_kv_shape(cache)) return error;
  SF_REQUIRE(cache.data, kNullPointer);
  SF_REQUIRE(aligned64(cache.data), kMisaligned);
  return kOk;
}

inline uint8_t* kv_record(const sf_kv_cache& cache, const KvLayout& layout, int64_t block, int64_t head) {
  return cache.data + (block * cache.kv_heads + head) * layout.record_bytes;
}

}  // namespace sf
