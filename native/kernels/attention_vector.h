// The integer products of attention on vector lanes, straight from the KV records: any variant, any number of rows.
#pragma once
#include "attention_dot.h"
#include "kernels/attention.h"
#include "kernels/carve.h"

namespace sf {

inline int64_t query_depth(const KvLayout& layout) { return (layout.head_dim + 63) / 64 * 64; }

// What makes up for the 128 in every key byte, where the dot products leave it in.
inline int32_t query_bias(const KvLayout& layout, const int8_t* q) {
  int32_t high = 0, low = 0;
  for (int64_t dim = 0; dim < layout.head_dim; ++dim) {
    high += q[dim];
    low += q[query_depth(layout) + dim];
  }
  return -kKeyBias * (128 * high + (layout.key_limbs == 2 ? high : 0) + low);
}

// A tile of query rows: int8 [rows][2 limbs][depth], zero beyond head_dim; depth is head_dim rounded up to 64.
struct Query {
  const int8_t* limbs;
  const int32_t* bias;
};

class VectorDots {
 public:
  VectorDots(const KvLayout& layout, Carve& memory)
      : layout_(layout),
        depth_(query_depth(layout)),
        totals_(memory.take<int32_t>(kTileRows * kSegment)),
        outs_(memory.take<int32_t>(layout.value_limbs * kTileRows * layout.value_dim)) {}

  void begin() {}
  void visit(const Segment&) {}

  // total of every row with every token of the visible groups
  void score(const Segment& segment, const Query& query, int rows) {
    for (int g = segment.first; g < segment.last; ++g) {
      if (layout_.key_limbs == 2) score_rows<2>(segment.group[g], query, rows, g);
      else score_rows<1>(segment.group[g], query, rows, g);
    }
  }
  Ints total(int row, int group) const { return loadi(totals_ + row * kSegment + group * 16); }

  // 256 sum Ph v + sum Pl v of every row: weights as quantise_probabilities writes them, 256 bytes a row
  void weigh(const Segment& segment, const uint8_t* weights, int rows) {
    for (int limb = 0; limb < layout_.value_limbs; ++limb)
      for (int row = 0; row < rows; row += 4) weigh_rows(segment, limb, weights + row * 2 * kSegment, row, rows - row);
  }
  Ints weighed(int limb, int row, int64_t dim) const { return loadi(outs_ + (limb * kTileRows + row) * layout_.value_dim + dim); }

 private:
  template <int kLimbs>
  void score_rows(const uint8_t* group, const Query& query, int rows, int g) {
    int row = 0;
    for (; row + 4 <= rows; row += 4) score_block<kLimbs, 4>(group, query, row, g);
    switch (rows - row) {
      case 3: return score_block<kLimbs, 3>(group, query, row, g);
      case 2: return score_block<kLimbs, 2>(group, query, row, g);
      case 1: return score_block<kLimbs, 1>(group, query, row, g);
    }
  }

  template <int kLimbs, int kRows>
  void score_block(const uint8_t* group, const Query& query, int row, int g) {
    const int8_t* q = query.limbs + row * 2 * depth_;
    Ints hh[kRows], hl[kRows], lh[kRows];
    for (int r = 0; r < kRows; ++r) hh[r] = hl[r] = lh[r] = set1i(0);
    const uint8_t* low = group + layout_.head_dim * kGroupTokens;
    for (int64_t dim = 0; dim < layout_.head_dim; dim += 4) {
      const KeyLine kh = load_key_line(group + dim * kGroupTokens);
      KeyLine kl;
      if constexpr (kLimbs == 2) kl = load_key_line(low + dim * kGroupTokens);
      for (int r = 0; r < kRows; ++r) {
        const QueryQuad qh = load_query_quad(q + r * 2 * depth_ + dim), ql = load_query_quad(q + (r * 2 + 1) * depth_ + dim);
        hh[r] = dot(hh[r], kh, qh);
        lh[r] = dot(lh[r], kh, ql);
        if constexpr (kLimbs == 2) hl[r] = dot(hl[r], kl, qh);
      }
    }
    for (int r = 0; r < kRows; ++r)
      storei(totals_ + (row + r) * kSegment + g * 16,
             addi(addi(shl<7>(hh[r]), hl[r]), addi(lh[r], set1i(query.bias[row + r]))));
  }

  void weigh_rows(const Segment& segment, int limb, const uint8_t* weights, int row, int rows) {
    int64_t dim = 0;
    const int64_t dims = layout_.value_dim;
    for (; dim + 32 <= dims; dim += 32) weigh_dims<2>(segment, limb, weights, row, rows, dim);
    if (dim < dims) weigh_dims<1>(segment, limb, weights, row, rows, dim);
  }

  template <int kLines>
  void weigh_dims(const Segment& segment, int limb, const uint8_t* weights, int row, int rows, int64_t dim) {
    switch (rows) {
      case 1: return weigh_block<1, kLines>(segment, limb, weights, row, dim);
      case 2: return weigh_block<2, kLines>(segment, limb, weights, row, dim);
      case 3: return weigh_block<3, kLines>(segment, limb, weights, row, dim);
      default: return weigh_block<4, kLines>(segment, limb, weights, row, dim);
    }
  }

  template <int kRows, int kLines>
  void weigh_block(const Segment& segment, int limb, const uint8_t* weights, int row, int64_t dim) {
    Ints high[kRows][kLines], low[kRows][kLines];
    for (int r = 0; r < kRows; ++r)
      for (int n = 0; n < kLines; ++n) high[r][n] = low[r][n] = set1i(0);
    for (int g = segment.first; g < segment.last; ++g) {
      const uint8_t* values = segment.group[g] + layout_.values_at + (limb * kGroupTokens * layout_.value_dim) + dim * 4;
      for (int quad = 0; quad < 4; ++quad) {
        ValueLine v[kLines];
        for (int n = 0; n < kLines; ++n) v[n] = load_value_line(values + quad * layout_.value_dim * 4 + n * 64);
        const uint8_t* w = weights + g / 4 * 64 + quad * 16 + g % 4 * 4;  // store_limbs's order
        for (int r = 0; r < kRows; ++r) {
          const WeightQuad wh = load_weight_quad(w + r * 2 * kSegment), wl = load_weight_quad(w + (r * 2 + 1) * kSegment);
          for (int n = 0; n < kLines; ++n) {
            high[r][n] = dot(high[r][n], v[n], wh);
            low[r][n] = dot(low[r][n], v[n], wl);
          }
        }
      }
    }
    for (int r = 0; r < kRows; ++r)
      for (int n = 0; n < kLines; ++n)
        storei(outs_ + (limb * kTileRows + row + r) * layout_.value_dim + dim + n * 16, addi(shl<8>(high[r][n]), low[r][n]));
  }

  const KvLayout& layout_;
  int64_t depth_;
  int32_t* totals_;  // [kTileRows][kSegment]
  int32_t* outs_;    // [limbs][kTileRows][value_dim]
};

}  // namespace sf
