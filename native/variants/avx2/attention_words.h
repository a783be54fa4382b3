// The integer products of attention in 16-bit words, for many query rows. A segment's keys and values are widened to
// words once for all rows of a unit; then one vpmaddwd multiplies two words of eight lanes, whatever they mean:
//   scores  keys of two limbs: total = sum of qh (128 kh + kl) + ql kh, four pairs of words per four dims;
//           keys of one limb: total = sum of (128 qh + ql) k, two pairs per four dims
//   values  out = sum of P v = sum of (P - 32768) v + 32768 sum of v, where P - 32768 is a signed word and the second
//           sum is the same for all rows: the rows' sums begin with it
// Every product and sum is exact in int32, so the bits are those of the limbs' products.
#pragma once
#include "kernels/attention_vector.h"

namespace sf::attention {

inline constexpr int kLineWords = 32;  // 16 tokens of two dims, or 16 dims of two tokens

inline __m256i load_words(const int16_t* from) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(from)); }
inline void store_words(int16_t* to, __m256i words) { _mm256_store_si256(reinterpret_cast<__m256i*>(to), words); }

// sums[r] += lines[i] * factors[r * stride + i], i ascending. A line is 16 lanes of two words, a factor two words.
// count: a multiple of 4. Not inlined, so that all registers are there for the sums; the pragmas unroll early enough
// for gcc 12 to use them.
template <int kRows>
[[gnu::noinline]] inline void add_products(const int16_t* lines, const int32_t* factors, int64_t stride, int64_t count,
                                           Ints* sums) {
  Ints own[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) own[r] = sums[r];
  for (int64_t i = 0; i < count; i += 4, lines += 4 * kLineWords, factors += 4)
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      const __m256i lo = load_words(lines + n * kLineWords), hi = load_words(lines + n * kLineWords + 16);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256i factor = _mm256_set1_epi32(factors[r * stride + n]);
        own[r].lo = _mm256_add_epi32(own[r].lo, _mm256_madd_epi16(lo, factor));
        own[r].hi = _mm256_add_epi32(own[r].hi, _mm256_madd_epi16(hi, factor));
        asm("" : "+x"(own[r].lo), "+x"(own[r].hi));  // row by row: gcc would need more registers than there are
      }
    }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sums[r] = own[r];
}

class WordDots {
 public:
  WordDots(const KvLayout& layout, int64_t rows, Carve& memory)
      : layout_(layout), key_pairs_(layout.head_dim / 4 * pairs_per_quad(layout)),
        queries_(memory.take<int32_t>(rows * key_pairs_)),
        keys_(memory.take<int16_t>(kSegmentGroups * key_pairs_ * kLineWords)),
        values_(memory.take<int16_t>(layout.value_limbs * layout.value_dim * kSegment)),
        begins_(memory.take<int32_t>(layout.value_limbs * (kSegmentGroups + 1) * layout.value_dim)), ahead_(layout) {}

  void begin(const Query& query, int64_t rows) {
    const int64_t depth = query_depth(layout_);
    for (int64_t row = 0; row < rows; ++row) {
      const int8_t* high = query.limbs + row * 2 * depth;
      for (int64_t dim = 0; dim < layout_.head_dim; dim += 4)
        write_factors(high + dim, high + depth + dim, queries_ + row * key_pairs_ + dim / 4 * pairs_per_quad(layout_));
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
        Ints sums[kRows] = {};
        ahead_.ask(pace_);
        add_products<kRows>(key_lines(g), queries_ + (first + row) * key_pairs_, key_pairs_, key_pairs_, sums);
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
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    auto* to = reinterpret_cast<int16_t*>(out);
    for (int at = 0; at < kSegment; at += kLanes) {
      const Ints p = to_int(mul(load(w + at), set1(inverse)));
      const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(p.lo, p.hi), 0xD8);  // in order again
      store_words(to + at, _mm256_xor_si256(_mm256_shuffle_epi8(words, order), _mm256_set1_epi16(-32768)));
    }
  }

 private:
  static constexpr int kGroupPairs = kGroupTokens / 2;  // of tokens
  static constexpr int kSegmentPairs = kSegment / 2;    // of tokens
  static constexpr int kBlockRows = 4;                  // whose sums fit into the registers

  static int64_t pairs_per_quad(const KvLayout& layout) { return 2 * layout.key_limbs; }

  static int32_t pair(int a, int b) { return static_cast<int32_t>((a & 0xFFFF) | static_cast<uint32_t>(b) << 16); }

  // Four dims of a query; of these the first and third make a pair, and the second and fourth.
  void write_factors(const int8_t* high, const int8_t* low, int32_t* to) const {
    for (int odd = 0; odd < 2; ++odd) {
      const int h0 = high[odd], h1 = high[odd + 2], l0 = low[odd], l1 = low[odd + 2];
      if (layout_.key_limbs == 2) to[odd] = pair(h0, h1), to[odd + 2] = pair(l0, l1);
      else to[odd] = pair(128 * h0 + l0, 128 * h1 + l1);
    }
  }

  // Where words lie. With one tile of rows they are used once, so all groups and all dims share one small place.
  int16_t* key_lines(int g) const { return keys_ + (keeps_ ? g * key_pairs_ * kLineWords : 0); }
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
    const __m256i bias = _mm256_set1_epi8(-128);
    const uint8_t* from = segment.group[g];
    int16_t* to = key_lines(g);
    for (int64_t dim = 0; dim < layout_.head_dim; dim += 4, from += 64) {
      if (dim % 8 == 0 && !keeps_) ahead_.ask(1);
      for (int half = 0; half < 2; ++half, to += 16) {
        const __m256i high = _mm256_xor_si256(load_256(from + half * 32), bias), even = even_bytes(high),
                      odd = odd_bytes(high);
        if constexpr (kLimbs == 1) {
          store_words(to, even);
          store_words(to + kLineWords, odd);
        } else {
          const __m256i low = _mm256_xor_si256(load_256(from + layout_.head_dim * kGroupTokens + half * 32), bias);
          store_words(to, _mm256_add_epi16(_mm256_slli_epi16(even, 7), even_bytes(low)));
          store_words(to + kLineWords, _mm256_add_epi16(_mm256_slli_epi16(odd, 7), odd_bytes(low)));
          store_words(to + 2 * kLineWords, even);
          store_words(to + 3 * kLineWords, odd);
        }
      }
      to += (2 * kLimbs - 1) * kLineWords;
    }
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
    __m256i words[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};  // sums of 8 values: 16 bits are enough
    for (int quad = 0; quad < 4; ++quad, from += layout_.value_dim * 4, to += 2 * kLineWords)
      for (int half = 0; half < 2; ++half) {
        const __m256i bytes = load_256(from + half * 32), even = even_bytes(bytes), odd = odd_bytes(bytes);
        store_words(to + half * 16, even);
        store_words(to + kLineWords + half * 16, odd);
        words[half] = _mm256_add_epi16(words[half], _mm256_add_epi16(even, odd));
      }
    const __m256i ones = _mm256_set1_epi16(1);
    return {_mm256_madd_epi16(words[0], ones), _mm256_madd_epi16(words[1], ones)};
  }

  template <int kRows>
  void weigh_limb(const Segment& segment, const int32_t* factors, int64_t dim, int limb, Ints (&sums)[kRows]) {
    const Ints start = subi(loadi(begins(limb, segment.last) + dim), loadi(begins(limb, segment.first) + dim));
    for (int r = 0; r < kRows; ++r) sums[r] = start;
    ahead_.ask(pace_);
    const int64_t first = segment.first * kGroupPairs, count = (segment.last - segment.first) * kGroupPairs;
    add_products<kRows>(value_lines(limb, dim) + first * kLineWords, factors + first, kSegmentPairs, count, sums);
  }

  // block<rows>(row) for each block of a tile's rows.
  template <class Block>
  static void by_rows(int rows, const Block& block) {
    int row = 0;
    for (; row + kBlockRows <= rows; row += kBlockRows) block.template operator()<kBlockRows>(row);
    switch (rows - row) {
      case 3:
        return block.template operator()<3>(row);
      case 2:
        return block.template operator()<2>(row);
      case 1:
        return block.template operator()<1>(row);
    }
  }

  // Steps of the prefetcher before each block of products, so that a segment's products ask for all of the next one.
  // With one tile of rows widening asks instead: it reads as many lines as there are to ask for.
  void set_pace(int64_t rows) {
    const int64_t blocks =
        divide_up(rows, kBlockRows) * (kSegmentGroups + layout_.value_limbs * layout_.value_dim / 16);
    pace_ = keeps_ ? divide_up(ahead_.num_steps(), blocks) : 0;
  }

  const KvLayout& layout_;
  int64_t key_pairs_;  // pairs of words in a token's key
  int32_t* queries_;   // [rows][key_pairs]
  int16_t* keys_;      // [group][key_pairs][16 tokens][2]
  int16_t* values_;    // [limb][dim / 16][token pairs][16 dims][2]
  int32_t* begins_;    // [limb][group + 1][value_dim]
  bool keeps_ = true;  // a segment's words for several tiles of rows
  SegmentPrefetcher ahead_;
  int64_t pace_ = 0;
};

}  // namespace sf::attention
