// The integer products of attention in 16-bit words, for many query rows. A segment's keys and values are widened to
// words once for all rows of a unit; then one vpmaddwd multiplies two words of eight lanes, whatever they mean:
//   scores  keys of one limb: total = sum of (128 qh + ql) k, two pairs of words per four dims;
//           keys of two limbs: total = sum of qh (128 kh + kl) + sum of ql kh. The first sum is two pairs of words per
//           four dims. In the second ql + 64 is an unsigned byte of 7 bits, so that vpmaddubsw takes all four dims and
//           cannot saturate; what is too much, 64 times the sum of kh, is the same for all rows
//   values  out = sum of P v = sum of (P - 32768) v + 32768 sum of v, where P - 32768 is a signed word and the second
//           sum is the same for all rows: the rows' sums begin with it
// Every product and sum is exact in int32, so the bits are those of the limbs' products.
#pragma once
#include "kernels/attention_vector.h"

namespace sf::attention {

inline constexpr int kLineWords = 32;  // 16 tokens of two dims, or 16 dims of two tokens

inline __m256i load_words(const int16_t* from) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(from)); }
inline void store_words(int16_t* to, __m256i words) { _mm256_store_si256(reinterpret_cast<__m256i*>(to), words); }

// Lines of a quad of four dims: two of words; for keys of two limbs a third of bytes, kh.
inline constexpr int kOneLimbLines = 2, kTwoLimbLines = 3;

// A line times a factor: two words of both, or four bytes, the factor's unsigned and below 128.
template <bool kBytes>
inline __m256i product(__m256i line, __m256i factor) {
  if constexpr (kBytes) return _mm256_madd_epi16(_mm256_maddubs_epi16(factor, line), _mm256_set1_epi16(1));
  return _mm256_madd_epi16(line, factor);
}

template <int kRows, bool kBytes>
[[gnu::always_inline]] inline void add_line(const int16_t* line, const int32_t* factors, int64_t stride,
                                            Ints (&sums)[kRows]) {
  const __m256i lo = load_words(line), hi = load_words(line + 16);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m256i factor = _mm256_set1_epi32(factors[r * stride]);
    sums[r].lo = _mm256_add_epi32(sums[r].lo, product<kBytes>(lo, factor));
    sums[r].hi = _mm256_add_epi32(sums[r].hi, product<kBytes>(hi, factor));
    asm("" : "+x"(sums[r].lo), "+x"(sums[r].hi));  // row by row: gcc would need more registers than there are
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
  static constexpr int8_t kLowBias = 64;                // makes a query's low limb unsigned
  static constexpr int kBlockRows = 4;                  // whose sums fit into the registers

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
    const __m256i bias = _mm256_set1_epi8(-128), too_much = _mm256_set1_epi8(kLowBias), ones = _mm256_set1_epi16(1);
    const uint8_t* from = segment.group[g];
    int16_t* to = key_lines(g);
    Ints start = set1i(0);
    for (int64_t dim = 0; dim < layout_.head_dim; dim += 4, from += 64, to += quad_lines_ * kLineWords) {
      if (dim % 8 == 0 && !keeps_) ahead_.ask(1);
      for (int half = 0; half < 2; ++half) {
        const __m256i high = _mm256_xor_si256(load_256(from + half * 32), bias);
        __m256i even = even_bytes(high), odd = odd_bytes(high);
        if constexpr (kLimbs == 2) {
          const __m256i low = _mm256_xor_si256(load_256(from + layout_.head_dim * kGroupTokens + half * 32), bias);
          even = _mm256_add_epi16(_mm256_slli_epi16(even, 7), even_bytes(low));
          odd = _mm256_add_epi16(_mm256_slli_epi16(odd, 7), odd_bytes(low));
          store_words(to + 2 * kLineWords + half * 16, high);
          __m256i& sum = half ? start.hi : start.lo;
          sum = _mm256_sub_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(too_much, high), ones));
        }
        store_words(to + half * 16, even);
        store_words(to + kLineWords + half * 16, odd);
      }
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
    add_products<kRows, false>(value_lines(limb, dim) + first * kLineWords, factors + first, kSegmentPairs, count,
                               sums);
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
