// The integer matmul of many rows of two limbs on vectors; docs/design/many_rows.md has the choice and its figures.
//
// A task is some panels by a block of rows. It goes through the depth in chunks. Of a chunk each panel's weights are
// unpacked once into the form that multiplies fastest, and serve all rows of the block, several at a time in registers:
//   CodeBlock  4-bit codes of two limbs whose table counts: the codes as bytes. Their multipliers and offsets enter
//              once a span, as in codes.h.
//   WordBlock  other weights of two limbs: 16-bit words, multiplied by the rows as words.
//   LineBlock  weights of one limb, as they are.
#pragma once
#include <algorithm>

#include "kernels/codes.h"
#include "row_kernels.h"

namespace sf::row_blocks {

static_assert(kChunkLines <= kInt32Lines);
inline constexpr int64_t kBlockRows = 96;
inline constexpr int64_t kRowsBytes = 512 << 10;  // of rows that stay in L2 beside all else

// Few rows times 4-bit codes are as quick without unpacking them.
inline bool worth(const Problem& p) {
  const bool codes = p.w->bits == 4 && p.w->limbs == 2 && p.w->counts();
  return p.x.limbs == 2 && p.rows > (codes ? kFewCodeRows : kFewRows);
}

// Blocks of much the same size: none is left with a row or two.
inline int64_t even_part(int64_t count, int64_t most) { return divide_up(count, divide_up(count, most)); }
inline int64_t block_rows(const Problem& p) { return even_part(p.rows, kBlockRows); }

// A panel's part of the depth.
struct Chunk {
  int64_t first, lines;
  bool opens, closes;  // the first, the last of the depth
};

// The parameters of a chunk's groups in turn, without a division for each.
struct Groups {
  const uint8_t* at;
  int64_t left, lines, bytes;

  template <class Source>
  Groups(const Source& w, int64_t line)
      : at(w.parameters_of(line, 0)), left(w.group_lines - line % w.group_lines), lines(w.group_lines),
        bytes(2 * w.half_bytes) {}
  void advance(int64_t count) {
    left -= count;
    if (left) return;
    at += bytes;
    left = lines;
  }
};

// The loops over rows, limbs and halves are unrolled by pragmas: gcc 12 would do it too late to keep the sums in
// registers.

// Keeps gcc from loading the weights of later lines early, for which it would spill sums.
[[gnu::always_inline]] inline void end_line() { __asm__ volatile("" ::: "memory"); }

// ---- 4-bit codes ----
//
// A weight is (code - m) * M + Z', Z' = Z + (t + m) * M, where the table is code + t and m the variant's kCodeMiddle.
// A span adds M times the sum of (code - m) * x, and Z' times X, the sum of x. Either both at once, or (kOffsetsFirst)
// a chunk's sums start as those of Z' times X, two spans at a time.
// Where rows are biased (kBiasedRows), bytes of x + 128 meet the codes, and a span's sums start as -128 times its
// codes.

struct CodeBlock {
  using Source = WideSource<4>;
  using Waiting = Doubles[2];  // the exact sums of a row with the halves of a panel
  static constexpr int kRows = kCodeRows;

  // Of the sums X of a row's spans: what add_codes takes [span][limb]; or (kOffsetsFirst) pairs of words [span /
  // 2][limb].
  static constexpr int64_t kSpanNumbers = kOffsetsFirst ? 1 : 2;
  static int64_t span_numbers(const Problem& p) { return num_spans(p) * kSpanNumbers; }
  // Then, where rows are biased, their bytes [limb][line].
  static int64_t row_prepared(const Problem& p) { return span_numbers(p) + (kBiasedRows ? 2 * p.lines() : 0); }
  static void prepare(const Problem& p, int64_t row, int32_t* out) {
    span_lines(p) == 8 ? prepare<8>(p, p.row(row), out) : prepare<4>(p, p.row(row), out);
    if constexpr (kBiasedRows)
      for (int limb = 0; limb < 2; ++limb)
        bias_row(p.row(row) + limb * p.x.stride, p.lines(), out + span_numbers(p) + limb * p.lines());
  }
  static void bias_row(const int8_t* x, int64_t lines, int32_t* out) {
    for (int64_t line = 0; line < lines; ++line)
      out[line] = static_cast<int32_t>(static_cast<uint32_t>(four_bytes(x + 4 * line)) ^ 0x80808080u);
  }
  // The bytes that meet the codes, from the chunk's first line on.
  static CodeRows bytes_of(const Problem& p, CodeRows x, const Chunk& c) {
    if constexpr (kBiasedRows) {
      x.x = reinterpret_cast<const int8_t*>(x.prepared + span_numbers(p));
      x.limb_stride = 4 * p.lines();
      x.row_stride = 4 * x.row_prepared;
    }
    x.x += 4 * c.first;
    x.prepared += c.first / span_lines(p) * kSpanNumbers;
    return x;
  }
  template <int Span>
  static void prepare(const Problem& p, const int8_t* x, int32_t* out) {
    for (int64_t line = 0; line < p.lines(); line += kTileLines) {
      int32_t sums[2][kTileLines];
      for (int limb = 0; limb < 2; ++limb) storei(sums[limb], add_spans<Span>(x + limb * p.x.stride + 4 * line));
      for (int64_t at = 0; at < kTileLines; at += 2 * Span, out += 2 * kSpanNumbers)
        for (int limb = 0; limb < 2; ++limb) prepare_two(sums[limb][at], sums[limb][at + Span], out + limb);
    }
  }
  static void prepare_two(int32_t first, int32_t second, int32_t* out) {
    if constexpr (kOffsetsFirst) out[0] = static_cast<int32_t>((first & 0xFFFF) | static_cast<uint32_t>(second) << 16);
    else out[0] = code_extra(first), out[2] = code_extra(second);
  }

  // Spans of codes [line][half], after those of biased rows their starts [half]; then multipliers [span][half], then
  // (kOffsetsFirst) pairs of offsets [span / 2][half].
  static constexpr int64_t kStartBytes = kBiasedRows ? 2 * kLine : 0;
  static int64_t codes_bytes(int64_t span, int64_t lines) { return 2 * kLine * lines + kStartBytes * (lines / span); }
  static int64_t unpacked_bytes(const Problem& p, int64_t lines) {
    return codes_bytes(span_lines(p), lines) + 3 * kLine * (lines / span_lines(p));
  }
  static uint8_t* unpack_span(const uint8_t* codes, int64_t lines, uint8_t* out) {
    CodeSums starts[2] = {no_codes(), no_codes()};
    for (int64_t line = 0; line < lines; ++line, codes += kLine, out += 2 * kLine) {
      prefetch(codes + kAhead);
      const Line both = load_line(codes), halves[2] = {low_nibbles(both), high_nibbles(both)};
      for (int half = 0; half < 2; ++half) {
        store_line(out + half * kLine, halves[half]);
        starts[half] = subtract_bias(starts[half], halves[half]);
      }
    }
    for (int half = 0; half < 2; ++half) store_start(out + half * kLine, starts[half]);
    return out + kStartBytes;
  }
  static void unpack(const Problem& p, const Source& w, const Chunk& c, uint8_t* out) {
    const int64_t span = span_lines(p);
    for (int64_t line = 0; line < c.lines; line += span)
      out = unpack_span(w.codes + (c.first + line) * kLine, span, out);
    auto* multipliers = reinterpret_cast<int32_t*>(out);
    int32_t* offsets = multipliers + c.lines / span * kPanel;
    Groups groups(w, c.first);
    for (int64_t line = 0; line < c.lines; line += 2 * span, multipliers += 2 * kPanel, offsets += kPanel) {
      Ints pairs[2][2];  // of multiplier and offset
      for (int i = 0; i < 2; ++i, groups.advance(span))
        for (int half = 0; half < 2; ++half) {
          pairs[i][half] = load_pairs(groups.at + half * w.half_bytes, w.with_offsets, w.first_entry + kCodeMiddle);
          storei(multipliers + i * kPanel + half * kHalf, code_multipliers(pairs[i][half]));
        }
      if constexpr (kOffsetsFirst)
        for (int half = 0; half < 2; ++half)
          storei(offsets + half * kHalf, addi(shr<16>(pairs[0][half]), shl<16>(shr<16>(pairs[1][half]))));
    }
  }

  // Adds some spans to the sums. Not inlined, so that all registers are there for the sums of a span.
  template <int Rows, int Span>
  [[gnu::noinline]] static void add_some(const uint8_t* codes, const int32_t* multipliers, int64_t spans, CodeRows x,
                                         Ints (*sums)[2][2]) {
    const int8_t* rows[Rows];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) rows[r] = x.x + r * x.row_stride;
    Ints held[Rows][2][2], (*totals)[2][2] = kHoldsTotals ? held : sums;
    if constexpr (kHoldsTotals) copy_sums<Rows>(sums, held);
    for (int64_t span = 0; span < spans; ++span, codes += Span * 2 * kLine + kStartBytes, multipliers += kPanel) {
      CodeSums s[Rows][2][2];
      const uint8_t* starts = codes + Span * 2 * kLine;
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int limb = 0; limb < 2; ++limb)
          s[r][limb][0] = start_codes(starts), s[r][limb][1] = start_codes(starts + kLine);
#pragma GCC unroll 8
      for (int i = 0; i < Span; ++i) {
        const RowCodes low = load_codes(codes + 2 * i * kLine), high = load_codes(codes + (2 * i + 1) * kLine);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
          for (int limb = 0; limb < 2; ++limb) {
            const int32_t four = four_bytes(rows[r] + limb * x.limb_stride + 4 * i);
            s[r][limb][0] = dot_row(s[r][limb][0], low, four);
            s[r][limb][1] = dot_row(s[r][limb][1], high, four);
            keep(s[r][limb]);
          }
        end_line();
      }
      const int32_t* extra = x.prepared + span * kSpanNumbers;
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r, extra += x.row_prepared) {
        rows[r] += 4 * Span;
#pragma GCC unroll 8
        for (int limb = 0; limb < 2; ++limb)
#pragma GCC unroll 8
          for (int half = 0; half < 2; ++half)
            totals[r][limb][half] =
                add_codes(totals[r][limb][half], s[r][limb][half], extra + limb, loadi(multipliers + half * kHalf));
      }
    }
    if constexpr (kHoldsTotals) copy_sums<Rows>(held, sums);
  }

  template <int Rows>
  [[gnu::always_inline]] static void copy_sums(const Ints (*from)[2][2], Ints (*to)[2][2]) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int limb = 0; limb < 2; ++limb) to[r][limb][0] = from[r][limb][0], to[r][limb][1] = from[r][limb][1];
  }

  template <int Rows>
  static void start(const int32_t* offsets, int64_t spans, const CodeRows& x, Ints (*sums)[2][2]) {
    Ints s[Rows][2][2];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int limb = 0; limb < 2; ++limb) s[r][limb][0] = s[r][limb][1] = set1i(0);
    const int32_t* pairs = x.prepared;
    for (int64_t span = kOffsetsFirst ? 0 : spans; span < spans; span += 2, offsets += kPanel, pairs += 2) {
      const Ints offset[2] = {loadi(offsets), loadi(offsets + kHalf)};
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int limb = 0; limb < 2; ++limb) {
          const Ints two = set1i(pairs[r * x.row_prepared + limb]);
          s[r][limb][0] = dot_pairs(s[r][limb][0], offset[0], two);
          s[r][limb][1] = dot_pairs(s[r][limb][1], offset[1], two);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int limb = 0; limb < 2; ++limb) sums[r][limb][0] = s[r][limb][0], sums[r][limb][1] = s[r][limb][1];
  }

  template <int Rows, int Span>
  static void sum_chunk(const uint8_t* unpacked, const Chunk& c, const CodeRows& x, Ints (*sums)[2][2]) {
    const int64_t spans = c.lines / Span;
    const auto* multipliers = reinterpret_cast<const int32_t*>(unpacked + codes_bytes(Span, c.lines));
    start<Rows>(multipliers + spans * kPanel, spans, x, sums);
    add_some<Rows, Span>(unpacked, multipliers, spans, x, sums);
  }

  template <int Rows>
  static void multiply(const Problem& p, const uint8_t* unpacked, const Chunk& c, const CodeRows& rows,
                       Waiting* waiting) {
    alignas(64) Ints sums[Rows][2][2];
    const CodeRows x = bytes_of(p, rows, c);
    if (span_lines(p) == 8) sum_chunk<Rows, 8>(unpacked, c, x, sums);
    else sum_chunk<Rows, 4>(unpacked, c, x, sums);
    for (int r = 0; r < Rows; ++r)
      for (int half = 0; half < 2; ++half) {
        Doubles& total = waiting[r][half];
        if (c.opens) total = to_double(set1i(0));
        total = add_scaled(add_scaled(total, sums[r][0][half], 128.0), sums[r][1][half], 1.0);
      }
  }

  static void finish(const PanelEnd& end, int64_t row, const CodeRows&, const Waiting& sums) {
    finish_exact(end, row, sums);
  }
};

// ---- weights of two limbs as words ----
//
// A row's number times a weight is less than 2^28, so that eight products fit an int32: piece = the sum over two lines.
// Of the pieces' sum V over a chunk, T = V mod 2^32 and H = sum of (piece >> 16) are kept: V lies between 2^16 H and
// 2^16 (H + pieces), so that r = (T - 2^16 H) mod 2^32 is what is missing: V = 2^16 H + r.

template <int Bits>
struct WordBlock {
  using Source = WideSource<Bits>;
  using Waiting = Doubles[2];
  static constexpr int kRows = kWordRows;

  // A row's numbers as pairs of words: [tile][columns 0 and 2, columns 1 and 3][line].
  static int64_t row_prepared(const Problem& p) { return p.lines() * 2; }
  static void prepare(const Problem& p, int64_t row, int32_t* out) {
    for (int64_t line = 0; line < p.lines(); line += kTileLines, out += 2 * kTileLines) {
      Ints limbs[2];
      for (int limb = 0; limb < 2; ++limb) {
        int32_t fours[kTileLines];
        std::memcpy(fours, p.row(row) + limb * p.x.stride + 4 * line, sizeof fours);
        limbs[limb] = loadi(fours);
      }
      const auto number = [&]<int Column>() {
        const auto byte = [](Ints four) { return sar<24>(shl<24 - 8 * Column>(four)); };
        return addi(shl<7>(byte(limbs[0])), byte(limbs[1]));
      };
      const auto pair = [](Ints low, Ints high) { return addi(andi(low, set1i(0xFFFF)), shl<16>(high)); };
      storei(out, pair(number.template operator()<0>(), number.template operator()<2>()));
      storei(out + kTileLines, pair(number.template operator()<1>(), number.template operator()<3>()));
    }
  }

  // [line][half][columns 0 and 2, columns 1 and 3]
  static int64_t unpacked_bytes(const Problem&, int64_t lines) { return 4 * kLine * lines; }
  static void unpack(const Problem&, const Source& w, const Chunk& c, uint8_t* out) {
    const int64_t span = w.span(), last = c.first + c.lines;
    Groups groups(w, c.first);
    for (int64_t start = c.first; start < last; start += span, groups.advance(span)) {
      const Wide wide[2] = {for_words(load_wide(groups.at, w.with_offsets)),
                            for_words(load_wide(groups.at + w.half_bytes, w.with_offsets))};
      for (int64_t line = start; line < start + span; ++line, out += 4 * kLine) {
        store_words(w.template values<0>(line), wide[0], out);
        store_words(w.template values<1>(line), wide[1], out + 2 * kLine);
      }
    }
  }
  static void store_words(const Line& values, const Wide& wide, uint8_t* out) {
    Ints even, odd;
    words<Source::kBits>(values, wide, even, odd);
    storei(reinterpret_cast<int32_t*>(out), even);
    storei(reinterpret_cast<int32_t*>(out + kLine), odd);
  }

  template <int Rows>
  [[gnu::noinline]] static void add_some(const uint8_t* words, int64_t tiles, const CodeRows& x, Ints (*total)[2],
                                         Ints (*high)[2]) {
    Ints t[Rows][2], h[Rows][2];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int half = 0; half < 2; ++half) t[r][half] = total[r][half], h[r][half] = high[r][half];
    const int32_t* rows[Rows];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) rows[r] = x.prepared + r * x.row_prepared;
    for (const uint8_t* end = words + tiles * kTileLines * 4 * kLine; words < end;) {
      for (int line = 0; line < kTileLines; line += 2, words += 8 * kLine) {
        Ints piece[Rows][2];
#pragma GCC unroll 8
        for (int i = 0; i < 4; ++i) {
          const auto word = [&](int half) {
            return loadi(reinterpret_cast<const int32_t*>(words + (i / 2 * 4 + half * 2 + i % 2) * kLine));
          };
          const Ints w[2] = {word(0), word(1)};
#pragma GCC unroll 8
          for (int r = 0; r < Rows; ++r) {
            const Ints pair = set1i(rows[r][i / 2 + i % 2 * kTileLines]);
#pragma GCC unroll 8
            for (int half = 0; half < 2; ++half)
              piece[r][half] = i ? dot_pairs(piece[r][half], w[half], pair) : times_pairs(w[half], pair);
            keep(piece[r]);
          }
          end_line();
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
          rows[r] += 2;
#pragma GCC unroll 8
          for (int half = 0; half < 2; ++half) {
            t[r][half] = addi(t[r][half], piece[r][half]);
            h[r][half] = add_high_words(h[r][half], piece[r][half]);
          }
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) rows[r] += kTileLines;
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int half = 0; half < 2; ++half) total[r][half] = t[r][half], high[r][half] = h[r][half];
  }

  template <int Rows>
  static void multiply(const Problem&, const uint8_t* unpacked, const Chunk& c, CodeRows x, Waiting* waiting) {
    alignas(64) Ints total[Rows][2], high[Rows][2];
    for (int r = 0; r < Rows; ++r)
      for (int half = 0; half < 2; ++half) total[r][half] = high[r][half] = set1i(0);
    x.prepared += c.first * 2;
    add_some<Rows>(unpacked, c.lines / kTileLines, x, total, high);
    for (int r = 0; r < Rows; ++r)
      for (int half = 0; half < 2; ++half) {
        Doubles& sum = waiting[r][half];
        if (c.opens) sum = to_double(set1i(0));
        const Ints missing = subi(total[r][half], shl<16>(high[r][half]));
        sum = add_scaled(add_scaled(sum, high[r][half], 65536.0), missing, 1.0);
      }
  }

  static void finish(const PanelEnd& end, int64_t row, const CodeRows&, const Waiting& sums) {
    finish_exact(end, row, sums);
  }
};

// ---- weights of one limb ----

template <class WeightSource>
struct LineBlock {
  using Source = WeightSource;
  using Waiting = Sums<2>;
  static constexpr int kRows = kLineRows;

  // What the sums of a row's limbs with ready weights are too large by.
  static int64_t row_prepared(const Problem&) { return 2; }
  static void prepare(const Problem& p, int64_t row, int32_t* out) {
    for (int limb = 0; limb < 2; ++limb) out[limb] = ready_excess(p.row(row) + limb * p.x.stride, 4 * p.lines());
  }

  // [line][half]
  static int64_t unpacked_bytes(const Problem&, int64_t lines) { return 2 * kLine * lines; }
  static void unpack(const Problem&, const Source& w, const Chunk& c, uint8_t* out) {
    each_line<1>(&w, c.first, c.first + c.lines, [&](int64_t, int, const Line(&weights)[2][1]) {
      for (int half = 0; half < 2; ++half, out += kLine) store_ready(out, weights[half][0]);
    });
  }

  template <int Rows>
  [[gnu::noinline]] static void add_some(const uint8_t* unpacked, int64_t lines, const CodeRows& x, Waiting* waiting) {
    Ints s[Rows][2][2];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int limb = 0; limb < 2; ++limb)
#pragma GCC unroll 8
        for (int half = 0; half < 2; ++half) s[r][limb][half] = loadi(waiting[r].k[limb] + half * kHalf);
    const int8_t* rows[Rows];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) rows[r] = x.x + r * x.row_stride;
    for (int64_t line = 0; line < lines; line += 4, unpacked += 8 * kLine) {
#pragma GCC unroll 8
      for (int i = 0; i < 4; ++i) {
        const Ready w[2] = {load_ready(unpacked + 2 * i * kLine), load_ready(unpacked + (2 * i + 1) * kLine)};
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
          for (int limb = 0; limb < 2; ++limb) {
            const int32_t four = four_bytes(rows[r] + limb * x.limb_stride + 4 * i);
#pragma GCC unroll 8
            for (int half = 0; half < 2; ++half) s[r][limb][half] = dot4(s[r][limb][half], w[half], four);
            keep(s[r][limb]);
          }
        end_line();
      }
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) rows[r] += 16;
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int limb = 0; limb < 2; ++limb)
#pragma GCC unroll 8
        for (int half = 0; half < 2; ++half) storei(waiting[r].k[limb] + half * kHalf, s[r][limb][half]);
  }

  template <int Rows>
  static void multiply(const Problem&, const uint8_t* unpacked, const Chunk& c, CodeRows x, Waiting* waiting) {
    if (c.opens) std::memset(static_cast<void*>(waiting), 0, Rows * sizeof(Waiting));
    x.x += 4 * c.first;
    add_some<Rows>(unpacked, c.lines, x, waiting);
  }

  static void finish(const PanelEnd& end, int64_t row, const CodeRows& x, const Waiting& sums) {
    for (int half = 0; half < 2; ++half) {
      const auto limb = [&](int i) { return subi(loadi(sums.k[i] + half * kHalf), set1i(x.prepared[i])); };
      finish_sum(end, row, half, combine_limbs(limb(0), limb(1)));
    }
  }
};

// f(block)
template <class F>
auto with_block(const Problem& p, const F& f) {
  const PackedHeader& w = *p.w;
  if (w.bits == 8 && w.limbs == 1) return f(LineBlock<PlainSource<1>>{});
  if (w.bits == 8) return f(WordBlock<8>{});
  if (w.limbs == 2) return w.counts() ? f(CodeBlock{}) : f(WordBlock<4>{});
  return w.counts() ? f(LineBlock<Narrow4Source<true>>{}) : f(LineBlock<Narrow4Source<false>>{});
}

// ---- a task: some panels, a block of rows ----

// f<Rows>() for a number of rows from Least to Most.
template <int Least, int Most, class F>
void with_rows(int64_t rows, const F& f) {
  if constexpr (Least < Most)
    if (rows < Most) return with_rows<Least, Most - 1>(rows, f);
  f.template operator()<Most>();
}

template <class Source>
Source source_of(const PackedHeader& h, int64_t panel) {
  if constexpr (std::is_same_v<Source, PlainSource<1>>) return {h.panel(panel) + h.codes};
  else return Source(h, panel);
}

template <class Block>
struct Task {
  using Source = typename Block::Source;
  const Problem& p;
  const Share& share;
  int64_t rows, lines;  // of the task, of a chunk
  uint8_t* unpacked;
  typename Block::Waiting* waiting;  // [panel][row]
  const int32_t* prepared;           // of the task's first row

  static int64_t chunk_lines(const Problem& p) { return std::min(p.lines(), kChunkLines); }
  static int64_t waiting_bytes(const Problem& p, int64_t panels) {
    return panels * block_rows(p) * static_cast<int64_t>(sizeof(typename Block::Waiting));
  }
  static int64_t prepared_bytes(const Problem& p) {
    return p.prepared ? 0 : align64(block_rows(p) * Block::row_prepared(p) * static_cast<int64_t>(sizeof(int32_t)));
  }
  static int64_t scratch_bytes(const Problem& p, int64_t panels) {
    return waiting_bytes(p, panels) + Block::unpacked_bytes(p, chunk_lines(p)) + prepared_bytes(p);
  }

  Task(const Problem& problem, const Share& part, uint8_t* scratch)
      : p(problem), share(part), rows(part.last_row - part.first_row), lines(chunk_lines(problem)) {
    waiting = reinterpret_cast<typename Block::Waiting*>(scratch);
    unpacked = scratch + waiting_bytes(p, share.last_panel - share.first_panel);
    prepared = p.prepared ? p.prepared + share.first_row * Block::row_prepared(p)
                          : prepare(unpacked + Block::unpacked_bytes(p, lines));
  }

  const int32_t* prepare(uint8_t* at) const {
    auto* out = reinterpret_cast<int32_t*>(at);
    for (int64_t row = 0; row < rows; ++row)
      Block::prepare(p, share.first_row + row, out + row * Block::row_prepared(p));
    return out;
  }

  CodeRows rows_from(int64_t row) const {
    return {p.row(share.first_row + row), prepared + row * Block::row_prepared(p), 2 * p.x.stride, p.x.stride,
            Block::row_prepared(p)};
  }

  Chunk chunk(int64_t first) const {
    const int64_t count = std::min(lines, p.lines() - first);
    return {first, count, first == 0, first + count == p.lines()};
  }

  // Few rows stay in L2 over the whole depth: then a panel's codes are read in one go.
  void run() const {
    if (2 * rows * p.x.stride <= kRowsBytes) {
      for (int64_t panel = share.first_panel; panel < share.last_panel; ++panel)
        for (int64_t first = 0; first < p.lines(); first += lines) run_chunk(chunk(first), panel, waiting);
      return;
    }
    for (int64_t first = 0; first < p.lines(); first += lines)
      for (int64_t panel = share.first_panel; panel < share.last_panel; ++panel)
        run_chunk(chunk(first), panel, waiting + (panel - share.first_panel) * block_rows(p));
  }

  void run_chunk(const Chunk& c, int64_t panel, typename Block::Waiting* sums) const {
    Block::unpack(p, source_of<Source>(*p.w, panel), c, unpacked);
    // Splitting what is left evenly, no part has less than half of Block::kRows.
    for (int64_t row = 0, part; row < rows; row += part) {
      part = even_part(rows - row, Block::kRows);
      with_rows<std::max(Block::kRows / 2, 1), Block::kRows>(
          part, [&]<int Rows>() { Block::template multiply<Rows>(p, unpacked, c, rows_from(row), sums + row); });
    }
    if (!c.closes) return;
    const PanelEnd end(p, panel);
    for (int64_t row = 0; row < rows; ++row) Block::finish(end, share.first_row + row, rows_from(row), sums[row]);
  }
};

inline int64_t scratch_bytes(const Problem& p, int64_t panels) {
  return with_block(p, [&]<class Block>(Block) { return Task<Block>::scratch_bytes(p, panels); });
}

inline void run(const Problem& p, const Share& share, uint8_t* scratch) {
  with_block(p, [&]<class Block>(Block) { Task<Block>(p, share, scratch).run(); });
}

// Numbers that are prepared of each row, for all tasks; and those of one row.
inline int64_t row_prepared(const Problem& p) {
  return with_block(p, [&]<class Block>(Block) { return Block::row_prepared(p); });
}
inline void prepare(const Problem& p, int64_t row, int32_t* out) {
  with_block(p, [&]<class Block>(Block) { Block::prepare(p, row, out + row * Block::row_prepared(p)); });
}

}  // namespace sf::row_blocks
