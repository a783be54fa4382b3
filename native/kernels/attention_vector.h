// The integer products of attention on vector lanes, straight from the KV records: any variant, any number of rows.
#pragma once
#include "attention_dot.h"
#include "kernels/attention.h"
#include "kernels/carve.h"

namespace sf::attention {

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

// A class of dots has: begin(rows of its tiles), once per task; visit, once per segment; then per tile
//   score: take(group)(row, total) for every row and every visible group
//   weigh: take(dim)(row, out) for every row and every 16 dims, from weights as quantise_weights writes them
class VectorDots {
 public:
  VectorDots(const KvLayout& layout, Carve&) : layout_(layout), depth_(query_depth(layout)) {}

  void begin(int) {}
  void visit(const Segment& segment, const Segment& next) {
    for (int g = 0; g < kSegmentGroups; ++g) ahead_[g] = next.group[g] - segment.group[g];
  }

  template <class Take>
  void score(const Segment& segment, const Query& query, int rows, const Take& take) {
    for (int g = segment.first; g < segment.last; ++g) {
      if (layout_.key_limbs == 2) score_rows<2>(segment.group[g], query, rows, g, take);
      else score_rows<1>(segment.group[g], query, rows, g, take);
    }
  }

  template <class Take>
  void weigh(const Segment& segment, const uint8_t* weights, int rows, const Take& take) {
    for (int row = 0; row < rows; row += 4) {
      const int64_t dims = layout_.value_dim, pairs = dims / 32 * 32;
      for (int64_t dim = 0; dim < pairs; dim += 32) weigh_rows<2>(segment, weights, row, rows - row, dim, take);
      if (pairs < dims) weigh_rows<1>(segment, weights, row, rows - row, pairs, take);
    }
  }

 private:
  template <int kLimbs, class Take>
  void score_rows(const uint8_t* group, const Query& query, int rows, int g, const Take& take) {
    int row = 0;
    for (; row + 4 <= rows; row += 4) score_block<kLimbs, 4>(group, query, row, g, take);
    switch (rows - row) {
      case 3: return score_block<kLimbs, 3>(group, query, row, g, take);
      case 2: return score_block<kLimbs, 2>(group, query, row, g, take);
      case 1: return score_block<kLimbs, 1>(group, query, row, g, take);
    }
  }

  template <int kLimbs, int kRows, class Take>
  void score_block(const uint8_t* group, const Query& query, int row, int g, const Take& take) {
    const int8_t* q = query.limbs + row * 2 * depth_;
    Ints hh[kRows], hl[kRows], lh[kRows];
    for (int r = 0; r < kRows; ++r) hh[r] = hl[r] = lh[r] = set1i(0);
    const int64_t low = layout_.head_dim * kGroupTokens, ahead = ahead_[g];
#pragma GCC unroll 4
    for (int64_t dim = 0; dim < layout_.head_dim; dim += 4) {
      const uint8_t* line = group + dim * kGroupTokens;
      const KeyLine kh = load_key_line(line);
      KeyLine kl;
      if constexpr (kLimbs == 2) kl = load_key_line(line + low);
      // Line after line, which the hardware's prefetcher then runs ahead of.
      for (int limb = 0; limb < kLimbs; ++limb) prefetch(group + ahead + (dim / 4 * kLimbs + limb) * 64);
      for (int r = 0; r < kRows; ++r) {
        const QueryQuad qh = load_query_quad(q + r * 2 * depth_ + dim), ql = load_query_quad(q + (r * 2 + 1) * depth_ + dim);
        hh[r] = dot(hh[r], kh, qh);
        lh[r] = dot(lh[r], kh, ql);
        if constexpr (kLimbs == 2) hl[r] = dot(hl[r], kl, qh);
      }
    }
    const auto take_row = take(g);
    for (int r = 0; r < kRows; ++r)
      take_row(row + r, addi(addi(shl<7>(hh[r]), hl[r]), addi(lh[r], set1i(query.bias[row + r]))));
  }

  template <int kLines, class Take>
  void weigh_rows(const Segment& segment, const uint8_t* weights, int row, int rows, int64_t dim, const Take& take) {
    switch (rows) {
      case 1: return weigh_block<1, kLines>(segment, weights, row, dim, take);
      case 2: return weigh_block<2, kLines>(segment, weights, row, dim, take);
      case 3: return weigh_block<3, kLines>(segment, weights, row, dim, take);
      default: return weigh_block<4, kLines>(segment, weights, row, dim, take);
    }
  }

  template <int kRows, int kLines, class Take>
  void weigh_block(const Segment& segment, const uint8_t* weights, int row, int64_t dim, const Take& take) {
    Ints out[kRows][kLines];
    weigh_limb<kRows, kLines>(segment, weights, row, dim, 0, out);
    Lanes sum[kRows][kLines];
    for (int r = 0; r < kRows; ++r)
      for (int n = 0; n < kLines; ++n) sum[r][n] = to_float(out[r][n]);
    if (layout_.value_limbs == 2) {
      weigh_limb<kRows, kLines>(segment, weights, row, dim, 1, out);
      for (int r = 0; r < kRows; ++r)
        for (int n = 0; n < kLines; ++n) sum[r][n] = fma(sum[r][n], set1(128.0f), to_float(out[r][n]));
    }
    for (int n = 0; n < kLines; ++n) {
      const auto take_row = take(dim + n * 16);
      for (int r = 0; r < kRows; ++r) take_row(row + r, sum[r][n]);
    }
  }

  template <int kRows, int kLines>
  void weigh_limb(const Segment& segment, const uint8_t* weights, int row, int64_t dim, int limb, Ints (&out)[kRows][kLines]) {
    Ints high[kRows][kLines], low[kRows][kLines];
    for (int r = 0; r < kRows; ++r)
      for (int n = 0; n < kLines; ++n) high[r][n] = low[r][n] = set1i(0);
    for (int g = segment.first; g < segment.last; ++g) {
      const uint8_t* limb_values = segment.group[g] + layout_.values_at + limb * kGroupTokens * layout_.value_dim;
      const uint8_t *values = limb_values + dim * 4, *next = limb_values + ahead_[g] + dim * kGroupTokens;
      const uint8_t* quads = weights + row * 2 * kSegment + g / 4 * 64 + g % 4 * 4;  // store_limbs's order
#pragma GCC unroll 4
      for (int quad = 0; quad < 4; ++quad) {
        ValueLine v[kLines];
        for (int n = 0; n < kLines; ++n) {
          v[n] = load_value_line(values + quad * layout_.value_dim * 4 + n * 64);
          prefetch(next + (quad * kLines + n) * 64);
        }
        for (int r = 0; r < kRows; ++r) {
          const uint8_t* w = quads + quad * 16 + r * 2 * kSegment;
          const WeightQuad wh = load_weight_quad(w), wl = load_weight_quad(w + kSegment);
          for (int n = 0; n < kLines; ++n) {
            high[r][n] = dot(high[r][n], v[n], wh);
            low[r][n] = dot(low[r][n], v[n], wl);
          }
        }
      }
    }
    for (int r = 0; r < kRows; ++r)
      for (int n = 0; n < kLines; ++n) out[r][n] = addi(shl<8>(high[r][n]), low[r][n]);
  }

  const KvLayout& layout_;
  int64_t depth_;
  int64_t ahead_[kSegmentGroups];  // from a group to the one to prefetch meanwhile: the next segment's
};

}  // namespace sf::attention
