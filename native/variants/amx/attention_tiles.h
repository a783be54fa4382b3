// The integer products of attention on AMX tiles: for many rows, which share one gathered copy of a segment.
#pragma once
#include <immintrin.h>

#include "kernels/attention_vector.h"

namespace sf {

inline constexpr int64_t kTileDotsRows = 8;  // from here on the tiles pay for the gathering

class TileDots {
 public:
  TileDots(const KvLayout& layout, Carve& memory)
      : layout_(layout),
        depth_(query_depth(layout)),
        keys_(memory.take<uint8_t>(layout.key_limbs * kSegment * depth_)),
        values_(memory.take<uint8_t>(layout.value_limbs * kSegment * layout.value_dim)),
        hh_(memory.take<int32_t>(kTileRows * kSegment)),
        mid_(memory.take<int32_t>(kTileRows * kSegment)),
        high_(memory.take<int32_t>(layout.value_limbs * kTileRows * layout.value_dim)),
        low_(memory.take<int32_t>(layout.value_limbs * kTileRows * layout.value_dim)) {}

  // All eight tiles 16 rows of 64 bytes. The configuration belongs to the thread, and other kernels load their own.
  void begin() {
    struct alignas(64) Config {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t colsb[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    barrier(&config);  // gcc 12's intrinsic claims to read 8 bytes only
    _tile_loadconfig(&config);
  }

  void visit(const Segment& segment) {
    for (int g = segment.first; g < segment.last; ++g) {
      for (int limb = 0; limb < layout_.key_limbs; ++limb) gather_keys(segment, limb, g);
      for (int limb = 0; limb < layout_.value_limbs; ++limb) gather_values(segment, limb, g);
    }
  }

  void score(const Segment& segment, const Query& query, int) {
    barrier(query.limbs);
    if (layout_.key_limbs == 2) score_groups<2>(segment, query.limbs);
    else score_groups<1>(segment, query.limbs);
  }
  Ints total(int row, int group) const {
    const int at = row * kSegment + group * 16;
    return addi(shl<7>(loadi(hh_ + at)), loadi(mid_ + at));
  }

  void weigh(const Segment& segment, const uint8_t* weights, int) {
    barrier(weights);
    constexpr int kStride = 2 * kSegment;
    const bool halves[2] = {segment.first < 4, segment.last > 4};
    _tile_loadd(4, weights, kStride);
    _tile_loadd(5, weights + 64, kStride);
    _tile_loadd(6, weights + kSegment, kStride);
    _tile_loadd(7, weights + kSegment + 64, kStride);
    for (int64_t tile = 0; tile < layout_.value_limbs * layout_.value_dim / 16; ++tile) {
      _tile_zero(0);
      _tile_zero(1);
      if (halves[0]) {
        _tile_loadd(2, values_ + tile * 2048, 64);
        _tile_dpbusd(0, 4, 2);
        _tile_dpbusd(1, 6, 2);
      }
      if (halves[1]) {
        _tile_loadd(3, values_ + tile * 2048 + 1024, 64);
        _tile_dpbusd(0, 5, 3);
        _tile_dpbusd(1, 7, 3);
      }
      _tile_stored(0, high_ + tile * 256, 64);
      _tile_stored(1, low_ + tile * 256, 64);
    }
    barrier(high_);
  }
  Ints weighed(int limb, int row, int64_t dim) const {
    const int64_t at = (limb * layout_.value_dim + dim) * kTileRows + row * 16;
    return addi(shl<8>(loadi(high_ + at)), loadi(low_ + at));
  }

 private:
  // gcc 12's tile loads do not say that they read memory.
  static void barrier(const void* read) { asm volatile("" ::"r"(read) : "memory"); }

  // Tiles of 16 tokens and 64 dims, [limb][group][dim / 64][16][64 bytes], the 128 taken off again.
  void gather_keys(const Segment& segment, int limb, int g) {
    const uint8_t* from = segment.group[g] + limb * layout_.head_dim * kGroupTokens;
    uint8_t* to = key_tile(limb, g, 0);
    const __m512i bias = _mm512_set1_epi8(-128);
    for (int64_t at = 0; at < layout_.head_dim * kGroupTokens; at += 64)
      _mm512_store_si512(to + at, _mm512_xor_si512(_mm512_loadu_si512(from + at), bias));
  }
  uint8_t* key_tile(int limb, int g, int64_t dim) const {
    return keys_ + ((limb * kSegmentGroups + g) * depth_ + dim) * kGroupTokens;
  }

  // Tiles of 64 tokens and 16 dims, [limb][dim / 16][half][16][64 bytes]; row 4 i + j is quad i of the half's group j,
  // which is store_limbs's order.
  void gather_values(const Segment& segment, int limb, int g) {
    const uint8_t* from = segment.group[g] + layout_.values_at + limb * kGroupTokens * layout_.value_dim;
    uint8_t* to = values_ + limb * layout_.value_dim * kSegment + g / 4 * 1024 + g % 4 * 64;
    for (int64_t tile = 0; tile < layout_.value_dim / 16; ++tile)
      for (int quad = 0; quad < 4; ++quad)
        _mm512_store_si512(to + tile * 2048 + quad * 256, _mm512_loadu_si512(from + quad * layout_.value_dim * 4 + tile * 64));
  }

  // Two groups at a time: tiles 0, 1 and 2, 3 gather hh and mid; 4, 5 hold the queries' limbs; 6, 7 the keys.
  template <int kLimbs>
  void score_groups(const Segment& segment, const int8_t* q) {
    const int64_t stride = 2 * depth_;
    if (depth_ == 64) load_queries(q, stride);
    for (int g = segment.first; g < segment.last; g += 2) {
      const int other = g + 1 < segment.last ? g + 1 : g;
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t dim = 0; dim < depth_; dim += 64) {
        if (depth_ > 64) load_queries(q + dim, stride);
        _tile_loadd(6, key_tile(0, g, dim), 64);
        _tile_loadd(7, key_tile(0, other, dim), 64);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(2, 4, 7);
        _tile_dpbssd(1, 5, 6);
        _tile_dpbssd(3, 5, 7);
        if constexpr (kLimbs == 2) {
          _tile_loadd(6, key_tile(1, g, dim), 64);
          _tile_loadd(7, key_tile(1, other, dim), 64);
          _tile_dpbssd(1, 4, 6);
          _tile_dpbssd(3, 4, 7);
        }
      }
      constexpr int kStride = kSegment * sizeof(int32_t);
      _tile_stored(0, hh_ + g * 16, kStride);
      _tile_stored(1, mid_ + g * 16, kStride);
      _tile_stored(2, hh_ + other * 16, kStride);
      _tile_stored(3, mid_ + other * 16, kStride);
    }
    barrier(hh_);
  }
  void load_queries(const int8_t* q, int64_t stride) {
    _tile_loadd(4, q, stride);
    _tile_loadd(5, q + depth_, stride);
  }

  const KvLayout& layout_;
  int64_t depth_;
  uint8_t *keys_, *values_;
  int32_t *hh_, *mid_;    // [kTileRows][kSegment]
  int32_t *high_, *low_;  // [limb][dim / 16][kTileRows][16]
};

}  // namespace sf
