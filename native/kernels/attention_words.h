// The integer products of attention in 16-bit words, for many query rows. A segment's keys and values are widened to
// words once for all rows of a unit; then one instruction multiplies two words of a lane, whatever they mean:
//   scores  keys of one limb: total = sum of (128 qh + ql) k, two pairs of words per four dims;
//           keys of two limbs: total = sum of qh (128 kh + kl) + sum of ql kh. The first sum is two pairs of words per
//           four dims. In the second ql + 64 is an unsigned byte of 7 bits, so that bytes multiply all four dims and
//           cannot saturate; what is too much, 64 times the sum of kh, is the same for all rows
//   values  out = sum of P v = sum of (P - 32768) v + 32768 sum of v, where P - 32768 is a signed word and the second
//           sum is the same for all rows: the rows' sums begin with it
// Every product and sum is exact in int32, so the bits are those of the limbs' products.
#pragma once
#include "int16_lines.h"  // of the variant
#include "kernels/attention_vector.h"

namespace sf::attention {

inline constexpr int kLineWords = 32;  // 16 tokens of two dims, or 16 dims of two tokens

inline Ints load_words(const int16_t* from) { return loadi(reinterpret_cast<const int32_t*>(from)); }
inline Ints load_bytes(const uint8_t* from) { return loadi(reinterpret_cast<const int32_t*>(from)); }
inline void store_words(int16_t* to, Ints words) { storei(reinterpret_cast<int32_t*>(to), words); }

// Lines of a quad of four dims: two of words; for keys of two limbs a third of bytes, kh.
inline constexpr int kOneLimbLines = 2, kTwoLimbLines = 3;

// A line times a factor: two words of both, or four bytes, the factor's unsigned and below 128.
template <bool kBytes>
inline Ints product(Ints line, Ints factor) {
  return kBytes ? dot_bytes(factor, line) : dot_words(line, factor);
}

template <int kRows, bool kBytes>
[[gnu::always_inline]] inline void add_line(const int16_t* line, const int32_t* factors, int64_t stride,
                                            Ints (&sums)[kRows]) {
  const Ints words = load_words(line);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    sums[r] = addi(sums[r], product<kBytes>(words, set1i(factors[r * stride])));
    keep(sums[r]);  // row by row: gcc would need more registers than there are
  }
}

// sums[r] += lines[i] * factors[r * stride + i], i ascending. kBytes: every third line is of bytes. count: a multiple
// of 3 then, else of 4. Not inlined, so that all registers are there for the sums; the pragmas unroll early enough for
// gcc 12 to use them.
template <int kRows, bool kBytes>
[[gnu::noinline]] inline void add_products(const int16_t* lines, const int32_t* factors, int64_t stride, int64_t count,
                                           Ints* sums) {
  constexpr int kAtOnce = kBytes ? kTwoLimbLines : 4;
  Ints own[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) own[r] = sums[r];
  for (int64_t i = 0; i < count; i += kAtOnce, lines += kAtOnce * kLineWords, factors += kAtOnce) {
#pragma GCC unroll 4
    for (int n = 0; n < kAtOnce - 1; ++n) add_line<kRows, false>(lines + n * kLineWords, factors + n, stride, own);
    add_line<kRows, kBytes>(lines + (kAtOnce - 1) * kLineWords, factors + kAtOnce - 1, stride, own);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sums[r] = own[r];
}

class WordDots {
 public:
  WordDots(const KvLayout& layout, int64_t rows, Carve& memory)
      : layout_(layout), quad_lines_(layout.key_limbs == 2 ? kTwoLimbLines : kOneLimbLines),
        key_lines_(layout.head_dim / 4 * quad_lines_), queries_(memory.take<int32_t>(rows * key_lines_)),
        keys_(memory.take<int16_t>(kSegmentGroups * key_lines_ * kLineWords)), starts_(memory.take<int32_t>(kSegment)),
        values_(memory.take<int16_t>(layout.value_limbs * layout.value_dim * kSegment)),
        begins_(memory.take<int32_t>(layout.value_limbs * (kSegmentGroups + 1) * layout.value_dim)), ahead_(layout) {}

  void begin(const Query& query, int64_t rows) {
    const int64_t depth = query_depth(layout_);
    for (int64_t row = 0; row < rows; ++row) {
      const int8_t* high = query.limbs + row * 2 * depth;
      for (int64_t dim = 0; dim < layout_.head_dim; dim += 4)
        write_factors(high + dim, high + depth + dim, queries_ + row * key_lines_ + dim / 4 * quad_lines_);
    }
    keeps_ = rows > kTileRows;
    set_pace(rows);
  }

  void visit(const Segment& segment, const Segment& next) {
    ahead_.turn_to(next);
    if (!keeps_) return;
    for (int g = segment.first; g < segment.last; ++g) widen_keys(segment, g);
    for (int64_t dim = 0; dim < layout_.value_dim; dim += kLanes) widen_values(segment, dim);
  }
  void between() {}

  template <class Take>
  void score(const Segment& segment, int64_t first, int rows, const Take& take) {
    for (int g = segment.first; g < segment.last; ++g) {
      if (!keeps_) widen_keys(segment, g);
      const auto take_row = take(g);
      by_rows(rows, [&]<int kRows>(int row) {
        Ints sums[kRows];
        for (int r = 0; r < kRows; ++r) sums[r] = loadi(starts_ + g * kGroupTokens);
        ahead_.ask(pace_);
        const int32_t* queries = queries_ + (first + row) * key_lines_;
        if (layout_.key_limbs == 2) add_products<kRows, true>(key_lines(g), queries, key_lines_, key_lines_, sums);
        else add_products<kRows, false>(key_lines(g), queries, key_lines_, key_lines_, sums);
        for (int r = 0; r < kRows; ++r) take_row(row + r, sums[r]);
      });
    }
  }

  template <class Take>
  void weigh(const Segment& segment, const uint8_t* weights, int rows, const Take& take) {
    const auto* factors = reinterpret_cast<const int32_t*>(weights);
    for (int64_t dim = 0; dim < layout_.value_dim; dim += kLanes) {
      if (!keeps_) widen_values(segment, dim);
      const auto take_row = take(dim);
      by_rows(rows, [&]<int kRows>(int row) {
        Ints sums[kRows];
        weigh_limb<kRows>(segment, factors + row * kSegmentPairs, dim, 0, sums);
        Lanes out[kRows];
        for (int r = 0; r < kRows; ++r) out[r] = to_float(sums[r]);
        if (layout_.value_limbs == 2) {
          weigh_limb<kRows>(segment, factors + row * kSegmentPairs, dim, 1, sums);
          for (int r = 0; r < kRows; ++r) out[r] = fma(out[r], set1(128.0f), to_float(sums[r]));
        }
        for (int r = 0; r < kRows; ++r) take_row(row + r, out[r]);
      });
    }
  }

  // P - 32768 as words; of every four tokens the first and third, then the second and fourth, as values are widened.
  static void store_weights(const float* w, float inverse, uint8_t* out) {
    auto* to = reinterpret_cast<int16_t*>(out);
    for (int at = 0; at < kSegment; at += kLanes) store_signed_pairs(to + at, to_int(mul(load(w + at), set1(inverse))));
  }

 private:
  static constexpr int kGroupPairs = kGroupTokens / 2;  // of tokens
  static constexpr int kSegmentPairs = kSegment / 2;    // of tokens
  static constexpr int8_t kLowBias = 64;                // makes a query's low limb unsigned
  static constexpr int kBlockRows = kWordBlockRows;     // whose sums fit into the registers

  static int32_t pair(int a, int b) { return static_cast<int32_t>((a & 0xFFFF) | static_cast<uint32_t>(b) << 16); }

  // Four dims of a query; of these the first and third make a pair, and the second and fourth.
  void write_factors(const int8_t* high, const int8_t* low, int32_t* to) const {
    for (int odd = 0; odd < 2; ++odd) {
      const int h0 = high[odd], h1 = high[odd + 2], l0 = low[odd], l1 = low[odd + 2];
      to[odd] = layout_.key_limbs == 2 ? pair(h0, h1) : pair(128 * h0 + l0, 128 * h1 + l1);
    }
    if (layout_.key_limbs == 1) return;
    uint8_t bytes[4];
    for (int i = 0; i < 4; ++i) bytes[i] = static_cast<uint8_t>(low[i] + kLowBias);
    std::memcpy(to + 2, bytes, 4);
  }

  // Where words lie. With one tile of rows they are used once, so all groups and all dims share one small place.
  int16_t* key_lines(int g) const { return keys_ + (keeps_ ? g * key_lines_ * kLineWords : 0); }
  int16_t* value_lines(int limb, int64_t dim) const {
    return values_ + (keeps_ ? limb * layout_.value_dim + dim : limb * kLanes) * kSegment;
  }
  // 32768 times the sum of the values of all groups before g, counted from the segment's first.
  int32_t* begins(int limb, int g) const { return begins_ + (limb * (kSegmentGroups + 1) + g) * layout_.value_dim; }

  void widen_keys(const Segment& segment, int g) {
    layout_.key_limbs == 2 ? widen_keys<2>(segment, g) : widen_keys<1>(segment, g);
  }

  template <int kLimbs>
  void widen_keys(const Segment& segment, int g) {
    const Ints bias = set1i(static_cast<int32_t>(0x80808080)), too_much = set1i(kLowBias * 0x01010101);
    const uint8_t* from = segment.group[g];
    int16_t* to = key_lines(g);
    Ints start = set1i(0);
    for (int64_t dim = 0; dim < layout_.head_dim; dim += 4, from += 64, to += quad_lines_ * kLineWords) {
      if (dim % 8 == 0 && !keeps_) ahead_.ask(1);
      const Ints high = xori(load_bytes(from), bias);
      Ints even = even_bytes(high), odd = odd_bytes(high);
      if constexpr (kLimbs == 2) {
        const Ints low = xori(load_bytes(from + layout_.head_dim * kGroupTokens), bias);
        even = add_words(shift_words<7>(even), even_bytes(low));
        odd = add_words(shift_words<7>(odd), odd_bytes(low));
        store_words(to + 2 * kLineWords, high);
        start = subi(start, dot_bytes(too_much, high));
      }
      store_words(to, even);
      store_words(to + kLineWords, odd);
    }
    storei(starts_ + g * kGroupTokens, start);
  }

  void widen_values(const Segment& segment, int64_t dim) {
    for (int limb = 0; limb < layout_.value_limbs; ++limb) {
      Ints sums = set1i(0);
      storei(begins(limb, segment.first) + dim, sums);
      for (int g = segment.first; g < segment.last; ++g) {
        if (!keeps_) ahead_.ask(1);
        sums = addi(sums, widen_values(segment, limb, dim, g));
        storei(begins(limb, g + 1) + dim, shl<15>(sums));
      }
    }
  }

  // Of one group and 16 dims. Returns their sums.
  Ints widen_values(const Segment& segment, int limb, int64_t dim, int g) {
    const uint8_t* from = segment.group[g] + layout_.values_at + limb * kGroupTokens * layout_.value_dim + dim * 4;
    int16_t* to = value_lines(limb, dim) + g * kGroupPairs * kLineWords;
    Ints words = set1i(0);  // sums of 8 values: 16 bits are enough
    for (int quad = 0; quad < 4; ++quad, from += layout_.value_dim * 4, to += 2 * kLineWords) {
      const Ints bytes = load_bytes(from), even = even_bytes(bytes), odd = odd_bytes(bytes);
      store_words(to, even);
      store_words(to + kLineWords, odd);
      words = add_words(words, add_words(even, odd));
    }
    return dot_words(words, set1i(0x00010001));
  }

  template <int kRows>
  void weigh_limb(const Segment& segment, const int32_t* factors, int64_t dim, int limb, Ints (&sums)[kRows]) {
    const Ints start = subi(loadi(begins(limb, segment.last) + dim), loadi(begins(limb, segment.first) + dim));
    for (int r = 0; r < kRows; ++r) sums[r] = start;
    ahead_.ask(pace_);
    const int64_t first = segment.first * kGroupPairs, count = (segment.last - segment.first) * kGroupPairs;
    add_products<kRows, false>(value_lines(limb, dim) + first * kLineWords, factors + first, kSegmentPairs, count,
                               sums);
  }

  // block<rows>(row) for each block of a tile's rows.
  template <class Block>
  static void by_rows(int rows, const Block& block) {
    int row = 0;
    for (; row + kBlockRows <= rows; row += kBlockRows) block.template operator()<kBlockRows>(row);
    if (row < rows) last_rows<kBlockRows - 1>(rows - row, row, block);
  }
  template <int kRows, class Block>
  static void last_rows(int rows, int row, const Block& block) {
    if constexpr (kRows > 1)
      if (rows < kRows) return last_rows<kRows - 1>(rows, row, block);
    block.template operator()<kRows>(row);
  }

  // Steps of the prefetcher before each block of products, so that a segment's products ask for all of the next one.
  // With one tile of rows widening asks instead: it reads as many lines as there are to ask for.
  void set_pace(int64_t rows) {
    const int64_t blocks =
        divide_up(rows, kBlockRows) * (kSegmentGroups + layout_.value_limbs * layout_.value_dim / 16);
    pace_ = keeps_ ? divide_up(ahead_.num_steps(), blocks) : 0;
  }

  const KvLayout& layout_;
  int quad_lines_;
  int64_t key_lines_;  // of a group's keys
  int32_t* queries_;   // [rows][key_lines]
  int16_t* keys_;      // [group][key_lines][16 tokens][2 words or 4 bytes]
  int32_t* starts_;    // [128 tokens], what the rows' sums begin with
  int16_t* values_;    // [limb][dim / 16][token pairs][16 dims][2]
  int32_t* begins_;    // [limb][group + 1][value_dim]
  bool keeps_ = true;  // a segment's words for several tiles of rows
  SegmentPrefetcher ahead_;
  int64_t pace_ = 0;
};

}  // namespace sf::attention
