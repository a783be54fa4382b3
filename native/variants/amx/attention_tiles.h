// The integer products of attention on AMX tiles. A group of keys is a stack of tiles as it lies in its record (unless
// head_dim is no multiple of 64); values are gathered first, since a tile takes 64 tokens, four groups.
#pragma once
#include <immintrin.h>

#include "kernels/attention_vector.h"
#include "tiles.h"

namespace sf::attention {

class TileDots {
 public:
  TileDots(const KvLayout& layout, int64_t, Carve& memory)
      : layout_(layout), depth_(query_depth(layout)), gathers_keys_(depth_ != layout.head_dim),
        keys_(memory.take<uint8_t>(gathers_keys_ ? layout.key_limbs * kSegment * depth_ : 0)),
        values_(memory.take<uint8_t>(layout.value_limbs * kSegment * layout.value_dim)),
        sums_(memory.take<int32_t>(2 * kSumsInts)) {}

  // Tiles 0 to 5 hold query rows or weights and sums, 6 and 7 keys or values.
  void begin(const Query& query, int64_t rows) {
    tiles::configure(static_cast<int>(std::min<int64_t>(rows, kTileRows)));
    query_ = query;
  }

  void visit(const Segment& segment, const Segment& next) {
    for (int g = segment.first; g < segment.last; ++g) {
      ahead_[g] = next.group[g] - segment.group[g];
      if (gathers_keys_) gather_keys(segment, g);
      for (int limb = 0; limb < layout_.value_limbs; ++limb) gather_values(segment, limb, g);
    }
    first_tile_ = true;
  }

  // A group's products run while the lanes are busy with the group before it.
  template <class Take>
  void score(const Segment& segment, int64_t first, int rows, const Take& take) {
    const int8_t* q = query_.limbs + first * 2 * depth_;
    barrier(q);
    const auto taken = [&, bias = query_.bias + first](int g) {
      const int32_t* sums = sums_of(g);
      const auto take_row = take(g);
      for (int r = 0; r < rows; ++r) {
        const Ints hh = loadi(sums + r * 16), mid = loadi(sums + 256 + r * 16);
        take_row(r, addi(addi(shl<7>(hh), mid), set1i(bias[r])));
      }
      if (first_tile_) prefetch_keys(segment, g);
    };
    if (depth_ == 64) load_queries(q);
    for (int g = segment.first; g < segment.last; ++g) {
      if (layout_.key_limbs == 2) score_group<2>(segment, q, g);
      else score_group<1>(segment, q, g);
      if (g > segment.first) taken(g - 1);
    }
    taken(segment.last - 1);
    first_tile_ = false;
  }

  void between() {}
  static void store_weights(const float* w, float inverse, uint8_t* out) { quantise_weights(w, inverse, out); }

  // Tiles 2 and 3 hold the high bytes of the weights, 4 and 5 the low ones.
  template <class Take>
  void weigh(const Segment& segment, const uint8_t* weights, int rows, const Take& take) {
    barrier(weights);
    constexpr int kStride = 2 * kSegment;
    _tile_loadd(2, weights, kStride);
    _tile_loadd(3, weights + 64, kStride);
    _tile_loadd(4, weights + kSegment, kStride);
    _tile_loadd(5, weights + kSegment + 64, kStride);
    const bool two_limbs = layout_.value_limbs == 2;
    const auto taken = [&, two_limbs](int64_t tile) {
      const int32_t* sums = sums_of(tile);
      const auto take_row = take(tile * 16);
      for (int r = 0; r < rows; ++r) {
        Lanes out = to_float(addi(shl<8>(loadi(sums + r * 16)), loadi(sums + 256 + r * 16)));
        if (two_limbs) {
          const Ints low = addi(shl<8>(loadi(sums + 512 + r * 16)), loadi(sums + 768 + r * 16));
          out = fma(out, set1(128.0f), to_float(low));
        }
        take_row(r, out);
      }
    };
    const int64_t tiles = layout_.value_dim / 16;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      for (int limb = 0; limb < layout_.value_limbs; ++limb) weigh_tile(segment, limb, tile);
      if (tile) taken(tile - 1);
    }
    taken(tiles - 1);
  }

 private:
  // Room for four tiles; no multiple of 4096 bytes, or loads from one area would wait for stores to the other.
  static constexpr int64_t kSumsInts = 6 * 256;

  // gcc 12's tile loads do not say that they read memory.
  static void barrier(const void* read) { asm volatile("" ::"r"(read) : "memory"); }

  // Two areas of up to four tiles in turn: one being written, one being taken.
  int32_t* sums_of(int64_t step) const { return sums_ + step % 2 * kSumsInts; }

  void load_queries(const int8_t* q) {
    _tile_loadd(4, q, 2 * depth_);
    _tile_loadd(5, q + depth_, 2 * depth_);
  }

  template <int kLimbs>
  void score_group(const Segment& segment, const int8_t* q, int g) {
    const uint8_t* keys = gathers_keys_ ? keys_ + g * layout_.key_limbs * depth_ * kGroupTokens : segment.group[g];
    const int64_t low = depth_ * kGroupTokens;
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t dim = 0; dim < depth_; dim += 64, keys += tiles::kTileBytes) {
      if (depth_ > 64) load_queries(q + dim);
      _tile_loadd(6, keys, 64);
      if constexpr (kLimbs == 2) _tile_loadd(7, keys + low, 64);
      _tile_dpbsud(0, 4, 6);
      _tile_dpbsud(1, 5, 6);
      if constexpr (kLimbs == 2) _tile_dpbsud(1, 4, 7);
    }
    _tile_stored(0, sums_of(g), 64);
    _tile_stored(1, sums_of(g) + 256, 64);
    barrier(sums_);
  }

  // The next segment's keys, while the first tile of rows goes over this one's.
  void prefetch_keys(const Segment& segment, int g) {
    for (int64_t at = 0; at < layout_.values_at; at += 64) prefetch(segment.group[g] + ahead_[g] + at);
  }

  // Keys of a head_dim that is no multiple of 64: [group][limb][depth / 4][16 tokens][4]. What lies beyond head_dim is
  // multiplied by zeros.
  void gather_keys(const Segment& segment, int g) {
    const int64_t bytes = layout_.head_dim * kGroupTokens;
    for (int limb = 0; limb < layout_.key_limbs; ++limb)
      std::memcpy(keys_ + (g * layout_.key_limbs + limb) * depth_ * kGroupTokens, segment.group[g] + limb * bytes,
                  bytes);
  }

  void weigh_tile(const Segment& segment, int limb, int64_t tile) {
    const uint8_t* values = values_ + limb * layout_.value_dim * kSegment + tile * (2 * tiles::kTileBytes);
    int32_t* sums = sums_of(tile) + limb * 512;
    _tile_zero(0);
    _tile_zero(1);
    if (segment.first < 4) {
      _tile_loadd(6, values, 64);
      _tile_dpbusd(0, 2, 6);
      _tile_dpbusd(1, 4, 6);
    }
    if (segment.last > 4) {
      _tile_loadd(7, values + tiles::kTileBytes, 64);
      _tile_dpbusd(0, 3, 7);
      _tile_dpbusd(1, 5, 7);
    }
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + 256, 64);
    barrier(sums_);
  }

  // Tiles of 64 tokens and 16 dims, [limb][dim / 16][half][16][64 bytes]; row 4 i + j is quad i of the half's group j,
  // which is store_limbs's order.
  void gather_values(const Segment& segment, int limb, int g) {
    const uint8_t* from = segment.group[g] + layout_.values_at + limb * kGroupTokens * layout_.value_dim;
    uint8_t* to = values_ + limb * layout_.value_dim * kSegment + g / 4 * tiles::kTileBytes + g % 4 * 64;
    for (int64_t tile = 0; tile < layout_.value_dim / 16; ++tile)
      for (int quad = 0; quad < 4; ++quad) {
        const uint8_t* line = from + quad * layout_.value_dim * 4 + tile * 64;
        _mm512_store_si512(to + tile * (2 * tiles::kTileBytes) + quad * 256, _mm512_loadu_si512(line));
        prefetch(line + ahead_[g]);
      }
  }

  const KvLayout& layout_;
  int64_t depth_;
  bool gathers_keys_;
  uint8_t *keys_, *values_;
  Query query_{};
  int32_t* sums_;                  // two areas of four tiles
  int64_t ahead_[kSegmentGroups];  // from a group to the next segment's
  bool first_tile_ = false;
};

}  // namespace sf::attention
