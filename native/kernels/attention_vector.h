// The integer products of attention on vector lanes, straight from the KV records: any variant, any number of rows.
#pragma once
#include "attention_dot.h"  // of the variant
#include "kernels/attention.h"
#include "kernels/carve.h"

namespace sf::attention {

inline int64_t query_depth(const KvLayout& layout) { return align64(layout.head_dim); }

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

// Asks for the next segment's lines while this one is at hand, evenly over the work: a burst would wait for the few
// buffers that lines on their way take, and memory would lie idle in the steps without. Two streams draw more than one.
class SegmentPrefetcher {
 public:
  explicit SegmentPrefetcher(const KvLayout& layout) : group_bytes_(layout.group_bytes) {}

  int64_t num_steps() const { return kStream * group_bytes_ / kStepBytes; }
  void turn_to(const Segment& next) {
    next_ = &next;
    group_ = 0;
    turn_to_group();
  }
  // At most to the end of a group.
  void ask(int64_t steps) {
    const uint8_t *a = lines_[0], *b = lines_[1], *stop = std::min(a + steps * kStepBytes, end_);
    if (a == stop) return;
    for (; a != stop; a += kStepBytes, b += kStepBytes) {
      prefetch(a);
      prefetch(a + 64);
      prefetch(b);
      prefetch(b + 64);
    }
    lines_[0] = a;
    lines_[1] = b;
    if (a == end_ && ++group_ < kStream) turn_to_group();
  }

 private:
  void turn_to_group() {
    lines_[0] = next_->group[group_];
    lines_[1] = next_->group[group_ + kStream];
    end_ = lines_[0] + group_bytes_;
  }

  static constexpr int kStream = kSegmentGroups / 2;  // groups of a stream
  static constexpr int64_t kStepBytes = 128;          // of each stream; a group is a multiple of it
  const int64_t group_bytes_;
  const Segment* next_ = nullptr;
  int group_ = 0;
  const uint8_t *lines_[2] = {}, *end_ = nullptr;
};

// A class of dots has: begin, once per task; visit, once per segment; then per tile
//   score: take(group)(row, total) for every row and every visible group, perhaps others too
//   between: once per row before weigh
//   store_weights: of a row, in the class's own order; 256 bytes
//   weigh: take(dim)(row, out) for every row and every 16 dims, from these
class VectorDots {
 public:
  VectorDots(const KvLayout& layout, int64_t rows, Carve& memory)
      : layout_(layout), depth_(query_depth(layout)),
        quads_(memory.take<int8_t>(divide_up(rows, kBlockRows) * kBlockRows * 2 * depth_)), ahead_(layout) {}

  // The queries in the order in which score_block wants them: [row / 4][depth / 4][4 rows][2 limbs][4].
  void begin(const Query& query, int64_t rows) {
    for (int64_t row = 0; row < rows; ++row)
      for (int limb = 0; limb < 2; ++limb) {
        const int8_t* from = query.limbs + (row * 2 + limb) * depth_;
        int8_t* to = quads_ + row / kBlockRows * kBlockRows * 2 * depth_ + (row % kBlockRows * 2 + limb) * 4;
        for (int64_t dim = 0; dim < depth_; dim += 4) std::memcpy(to + dim * kBlockRows * 2, from + dim, 4);
      }
    query_ = query;
    set_pace(rows);
  }

  void visit(const Segment&, const Segment& next) { ahead_.turn_to(next); }
  void between() { ahead_.ask(pace_.row); }
  static void store_weights(const float* w, float inverse, uint8_t* out) { quantise_weights(w, inverse, out); }

  template <class Take>
  void score(const Segment& segment, int64_t row, int rows, const Take& take) {
    for (int g = segment.first / kScoreGroups * kScoreGroups; g < segment.last; g += kScoreGroups) {
      if (layout_.key_limbs == 2) score_rows<2>(segment, row, rows, g, take);
      else score_rows<1>(segment, row, rows, g, take);
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
  static constexpr int kBlockRows = 4;
  // Groups scored together, so that what is broadcast of the queries serves more than one. One of them may be one that
  // no row sees.
  static constexpr int kScoreGroups = kLaneRegisters >= 32 ? 2 : 1;

  // How many steps SegmentPrefetcher takes before 16 dims of a block's scores, after a row's, and before a group of a
  // block's values.
  struct Pace {
    int64_t score, row, weigh;
  };

  // Work is counted in dot products on 16 lanes. Between score and weigh, 16 tokens of a row take as long as
  // kSoftmaxDots.
  void set_pace(int64_t rows) {
    constexpr int64_t kSoftmaxDots = 16;
    const int64_t score = 4 * (layout_.key_limbs + 1),
                  weigh = 8 * layout_.value_limbs;  // of a row, 16 tokens and 16 dims
    const int64_t whole = layout_.head_dim / 16 * score + layout_.value_dim / 16 * weigh + kSoftmaxDots;
    const int64_t block = std::min<int64_t>(rows, kBlockRows), work = rows * kSegmentGroups * whole,
                  steps = ahead_.num_steps();
    const auto share = [=](int64_t part) { return (part * steps + work / 2) / work; };
    pace_ = {share(kScoreGroups * block * score), share(kSegmentGroups * kSoftmaxDots), share(block * 2 * weigh) + 1};
  }

  template <int kLimbs, class Take>
  void score_rows(const Segment& segment, int64_t first, int rows, int g, const Take& take) {
    int row = 0;
    for (; row + 4 <= rows; row += 4) score_block<kLimbs, 4>(segment, first, row, g, take);
    switch (rows - row) {
      case 3:
        return score_block<kLimbs, 3>(segment, first, row, g, take);
      case 2:
        return score_block<kLimbs, 2>(segment, first, row, g, take);
      case 1:
        return score_block<kLimbs, 1>(segment, first, row, g, take);
    }
  }

  template <int kLimbs, int kRows, class Take>
  void score_block(const Segment& segment, int64_t first, int row, int g, const Take& take) {
    const int8_t* quads = quads_ + (first + row) * 2 * depth_;
    const uint8_t* keys[kScoreGroups];
    Ints high[kScoreGroups][kRows], mid[kScoreGroups][kRows];
    for (int n = 0; n < kScoreGroups; ++n) {
      keys[n] = segment.group[g + n];
      for (int r = 0; r < kRows; ++r) high[n][r] = mid[n][r] = set1i(0);
    }
    const int64_t low = layout_.head_dim * kGroupTokens;
    for (int64_t dim = 0; dim < layout_.head_dim; dim += 16) {
      ahead_.ask(pace_.score);
#pragma GCC unroll 4
      for (int quad = 0; quad < 4; ++quad, quads += 4 * 2 * kBlockRows) {
        KeyLine kh[kScoreGroups], kl[kScoreGroups];
        for (int n = 0; n < kScoreGroups; ++n, keys[n - 1] += 64) {
          kh[n] = load_key_line(keys[n]);
          if constexpr (kLimbs == 2) kl[n] = load_key_line(keys[n] + low);
        }
        for (int r = 0; r < kRows; ++r) {
          const QueryQuad qh = load_query_quad(quads + r * 8), ql = load_query_quad(quads + r * 8 + 4);
          for (int n = 0; n < kScoreGroups; ++n) {
            high[n][r] = dot(high[n][r], kh[n], qh);
            mid[n][r] = dot(mid[n][r], kh[n], ql);
            if constexpr (kLimbs == 2) mid[n][r] = dot(mid[n][r], kl[n], qh);
          }
        }
      }
    }
    for (int n = 0; n < kScoreGroups; ++n) {
      const auto take_row = take(g + n);
      for (int r = 0; r < kRows; ++r)
        take_row(row + r, addi(addi(shl<7>(high[n][r]), mid[n][r]), set1i(query_.bias[first + row + r])));
    }
  }

  template <int kLines, class Take>
  void weigh_rows(const Segment& segment, const uint8_t* weights, int row, int rows, int64_t dim, const Take& take) {
    switch (rows) {
      case 1:
        return weigh_block<1, kLines>(segment, weights, row, dim, take);
      case 2:
        return weigh_block<2, kLines>(segment, weights, row, dim, take);
      case 3:
        return weigh_block<3, kLines>(segment, weights, row, dim, take);
      default:
        return weigh_block<4, kLines>(segment, weights, row, dim, take);
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
  void weigh_limb(const Segment& segment, const uint8_t* weights, int row, int64_t dim, int limb,
                  Ints (&out)[kRows][kLines]) {
    Ints high[kRows][kLines], low[kRows][kLines];
    for (int r = 0; r < kRows; ++r)
      for (int n = 0; n < kLines; ++n) high[r][n] = low[r][n] = set1i(0);
    for (int g = segment.first; g < segment.last; ++g) {
      const uint8_t* limb_values = segment.group[g] + layout_.values_at + limb * kGroupTokens * layout_.value_dim;
      const uint8_t* values = limb_values + dim * 4;
      const uint8_t* quads = weights + row * 2 * kSegment + g / 4 * 64 + g % 4 * 4;  // store_limbs's order
      ahead_.ask(pace_.weigh);
#pragma GCC unroll 4
      for (int quad = 0; quad < 4; ++quad) {
        ValueLine v[kLines];
        for (int n = 0; n < kLines; ++n) v[n] = load_value_line(values + quad * layout_.value_dim * 4 + n * 64);
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
  int8_t* quads_;
  Query query_{};
  SegmentPrefetcher ahead_;
  Pace pace_{};
};

}  // namespace sf::attention
