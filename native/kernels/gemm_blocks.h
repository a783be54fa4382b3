// The integer matmul of many rows on vectors; docs/design/gemm.md has the choice and its figures.
//
// The forms in which a chunk's weights serve all rows of a block (gemm_tasks.h), several at a time in registers:
//   WordBlock  weights of two limbs: 16-bit words, multiplied by the rows as words.
//   LineBlock  weights of one limb, as they are.
#pragma once
#include "gemm_kernels.h"  // of the variant
#include "kernels/gemm_tasks.h"
#include "kernels/int16_words.h"

namespace sf::gemm_blocks {

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

// ---- weights of two limbs as words: int16_words.h says how their products are added up ----

// Weights as words, [half] of a line: columns 0 and 2, columns 1 and 3. store(I, even, odd) takes those of line + I,
// for four lines.
template <class F>
[[gnu::always_inline]] inline void each_of_four(const F& f) {
  f.template operator()<0>(), f.template operator()<1>(), f.template operator()<2>(), f.template operator()<3>();
}
template <class Codes, bool WithOffsets>
struct ByteCodes {
  using Source = typename Codes::Source;
  static Wide parameters(const Source&, const uint8_t* half) { return for_words(load_wide(half, WithOffsets)); }
  template <class Store>
  static void words(const Source& w, int64_t line, const Wide (&wide)[2], const Store& store) {
    const Codes codes(w, line, w.narrow_codes ? 0 : kAhead);
    each_of_four([&]<int I>() {
      Line both[2];
      Ints even[2], odd[2];
      codes.template load<I>(both);
      for (int half = 0; half < 2; ++half) sf::words<8, WithOffsets>(both[half], wide[half], even[half], odd[half]);
      store(I, even, odd);
    });
  }
};
// 4-bit codes of any table.
struct TableCodes {
  using Source = WideSource<4>;
  static Wide parameters(const Source& w, const uint8_t* half) { return for_words(load_wide(half, w.with_offsets)); }
  template <class Store>
  static void words(const Source& w, int64_t line, const Wide (&wide)[2], const Store& store) {
    each_of_four([&]<int I>() {
      Ints even[2], odd[2];
      sf::words<4>(w.values<0>(line + I), wide[0], even[0], odd[0]);
      sf::words<4>(w.values<1>(line + I), wide[1], even[1], odd[1]);
      store(I, even, odd);
    });
  }
};
// 4-bit codes whose table is linear.
struct LinearCodes {
  using Source = WideSource<4>;
  static Wide parameters(const Source& w, const uint8_t* half) {
    return count_from(w.first_entry, for_words(load_wide(half, w.with_offsets)));
  }
  template <class Store>
  static void words(const Source& w, int64_t line, const Wide (&wide)[2], const Store& store) {
    const Ints mask = set1i(0x000F000F);
    each_of_four([&]<int I>() {
      const Ints codes = loadi(reinterpret_cast<const int32_t*>(w.nibbles(line + I)));
      const Ints even[2] = {word_products(andi(codes, mask), wide[0]),
                            word_products(andi(shr<4>(codes), mask), wide[1])};
      const Ints odd[2] = {word_products(andi(shr<8>(codes), mask), wide[0]),
                           word_products(andi(shr<12>(codes), mask), wide[1])};
      store(I, even, odd);
    });
  }
};

template <class WordForm>
struct WordBlock {
  using Form = WordForm;
  using Source = typename Form::Source;
  using Waiting = Sums<2>;  // T, H
  static constexpr int kRows = kWordRows;
  static constexpr int64_t kLines = kWordLines;  // of a chunk

  // Of a group: the pairs of words, [line][columns 0 and 2, columns 1 and 3][row]; the lines of pieces, [chunk][row].
  static int64_t num_chunks(const Problem& p) { return divide_up(p.lines(), kLines); }
  static int64_t row_prepared(const Problem& p) { return p.lines() * 2 + num_chunks(p); }
  static void prepare(const Problem& p, const RowGroup& group, int64_t row, int32_t* out) {
    out += row - group.first;
    int32_t* lines_of = out + p.lines() * 2 * group.rows;
    for (int64_t first = 0; first < p.lines(); first += kLines, lines_of += group.rows) {
      PieceLines<kLines> pieces;
      for (int64_t line = first; line < std::min(first + kLines, p.lines()); line += kTileLines) {
        int32_t pairs[2 * kTileLines];
        pieces.add(word_pairs(p.row(row) + 4 * line, p.x.stride, pairs));
        for (int i = 0; i < 2 * kTileLines; ++i, out += group.rows) *out = pairs[i / 2 + i % 2 * kTileLines];
      }
      *lines_of = pieces.lines();
    }
  }

  // [line][half][columns 0 and 2, columns 1 and 3]
  static int64_t unpacked_bytes(const Problem&, int64_t lines) { return 4 * kLine * lines; }
  static void unpack(const Problem&, const Source& w, const Chunk& c, uint8_t* out) {
    const int64_t span = w.span(), last = c.first + c.lines;
    Groups groups(w, c.first);
    for (int64_t start = c.first; start < last; start += span, groups.advance(span)) {
      if (w.enter(start)) groups = Groups(w, start);
      const Wide wide[2] = {Form::parameters(w, groups.at), Form::parameters(w, groups.at + w.half_bytes)};
      for (int64_t line = start; line < start + span; line += 4, out += 16 * kLine)
        Form::words(w, line, wide, [out](int i, const Ints(&even)[2], const Ints(&odd)[2]) {
          int32_t* at = reinterpret_cast<int32_t*>(out + i * 4 * kLine);
          for (int half = 0; half < 2; ++half) {
            storei(at + half * 2 * kHalf, even[half]);
            storei(at + half * 2 * kHalf + kHalf, odd[half]);
          }
        });
    }
  }

  // Adds the pieces of some lines. Not inlined, so that all registers are there for the sums of a piece.
  template <int Rows>
  [[gnu::noinline]] static void add_some(const uint8_t* words, int64_t lines, int64_t piece_lines, const int32_t* pairs,
                                         Waiting* waiting) {
    for (const uint8_t* end = words + lines * 4 * kLine; words < end;) {
      Ints piece[Rows][2];
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) piece[r][0] = piece[r][1] = set1i(0);
      const uint8_t* last = std::min(words + piece_lines * 4 * kLine, end);
      do {
#pragma GCC unroll 8
        for (int i = 0; i < 4; ++i) {
          const uint8_t* at = words + (i / 2 * 4 + i % 2) * kLine;
          const RowWords w[2] = {load_words_of(at), load_words_of(at + 2 * kLine)};
#pragma GCC unroll 8
          for (int r = 0; r < Rows; ++r) {
            const Ints pair = set1i(pairs[i * Rows + r]);
            add_product(piece[r][0], w[0], pair);
            add_product(piece[r][1], w[1], pair);
          }
          end_line();
        }
        words += 8 * kLine;
        pairs += 4 * Rows;
      } while (words != last);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) add_piece(waiting[r], piece[r]);
    }
  }
  [[gnu::always_inline]] static void add_piece(Waiting& sums, const Ints (&piece)[2]) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      int32_t *total = sums.k[0] + half * kHalf, *high = sums.k[1] + half * kHalf;
      storei(total, addi(loadi(total), piece[half]));
      storei(high, addi(loadi(high), sar<16>(piece[half])));
    }
  }

  template <int Rows>
  static void multiply(const Problem& p, const uint8_t* unpacked, const Chunk& c, const CodeRows& x, Waiting* waiting) {
    if (c.opens) std::memset(static_cast<void*>(waiting), 0, Rows * sizeof(Waiting));
    const int32_t* lines_of = x.prepared + (p.lines() * 2 + c.first / kLines) * Rows;
    add_some<Rows>(unpacked, c.lines, *std::min_element(lines_of, lines_of + Rows), x.prepared + c.first * 2 * Rows,
                   waiting);
  }

  static void finish(const PanelEnd& end, int64_t row, const CodeRows&, const Waiting& sums) {
    Doubles exact[2];
    for (int half = 0; half < 2; ++half)
      exact[half] = add_pieces(to_double(set1i(0)), loadi(sums.k[0] + half * kHalf), loadi(sums.k[1] + half * kHalf));
    finish_exact(end, row, exact);
  }
};

// ---- weights of one limb ----

// Rows of two limbs, or twice as many of one limb and one scale.
template <class WeightSource, int Limbs>
struct LineBlock {
  using Source = WeightSource;
  using Waiting = Sums<Limbs>;
  static constexpr int kRows = kLineRows * 2 / Limbs;
  static constexpr int64_t kLines = kByteLines;

  // What the sums of a row's limbs with ready weights are too large by.
  static int64_t row_prepared(const Problem&) { return Limbs; }
  static void prepare(const Problem& p, const RowGroup& group, int64_t row, int32_t* out) {
    out += (row - group.first) * row_prepared(p);
    for (int limb = 0; limb < Limbs; ++limb) out[limb] = ready_excess(p.row(row) + limb * p.x.stride, 4 * p.lines());
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
    Ints s[Rows][Limbs][2];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int limb = 0; limb < Limbs; ++limb)
#pragma GCC unroll 8
        for (int half = 0; half < 2; ++half) s[r][limb][half] = loadi(waiting[r].k[limb] + half * kHalf);
    const int8_t* rows[Rows];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) rows[r] = x.x + r * x.row_stride;
    for (int64_t line = 0; line < lines; line += 4, unpacked += 8 * kLine) {
#pragma GCC unroll 8
      for (int i = 0; i < 4; ++i) {
        const Ready w[2] = {load_ready(unpacked + 2 * i * kLine), load_ready(unpacked + (2 * i + 1) * kLine)};
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
          for (int limb = 0; limb < Limbs; ++limb) {
            const int32_t four = four_bytes(rows[r] + limb * x.limb_stride + 4 * i);
#pragma GCC unroll 8
            for (int half = 0; half < 2; ++half) s[r][limb][half] = dot4(s[r][limb][half], w[half], four);
            keep(s[r][limb]);
          }
        end_line();
      }
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) rows[r] += 16;
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
      for (int limb = 0; limb < Limbs; ++limb)
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
    Partial partial;
    for (int half = 0; half < 2; ++half) {
      const auto limb = [&](int i) { return subi(loadi(sums.k[i] + half * kHalf), set1i(x.prepared[i])); };
      if constexpr (Limbs == 2) finish_sum(end, row, half, combine_limbs(limb(0), limb(1)));
      else store(partial.v + half * kHalf, fma(to_float(limb(0)), set1(end.p.x.scales[row]), zero()));
    }
    if constexpr (Limbs == 1) finish_one_limb(end, row, partial);
  }
};

struct Blocks {
  // Few rows times 4-bit codes are quicker without unpacking them. More rows than this are half of a block's kRows, so
  // that no group is smaller.
  static int64_t few_rows(const Problem& p) {
    if (p.x.limbs == 1) return std::max<int64_t>(kFewRows, kLineRows);
    return p.w->bits == 4 && p.w->is_linear() ? few_code_rows(p) : kFewRows;
  }
  static bool applies(const Problem& p) {
    const bool suits = p.x.limbs == 2 || (p.w->limbs == 1 && p.x.group == 0);
    return suits && p.rows > few_rows(p);
  }

  // f(block)
  template <class F>
  static auto with_block(const Problem& p, const F& f) {
    if (p.w->limbs == 1) return p.x.limbs == 1 ? with_lines<1>(*p.w, f) : with_lines<2>(*p.w, f);
    if (p.w->bits == 8)
      return with_codes(*p.w,
                        [&]<class Codes, bool WithOffsets>(std::type_identity<Codes>, std::bool_constant<WithOffsets>) {
                          return f(WordBlock<ByteCodes<Codes, WithOffsets>>{});
                        });
    return p.w->is_linear() ? f(WordBlock<LinearCodes>{}) : f(WordBlock<TableCodes>{});
  }
  template <int Limbs, class F>
  static auto with_lines(const PackedHeader& w, const F& f) {
    if (w.bits == 8) return f(LineBlock<PlainSource<1>, Limbs>{});
    return w.is_linear() ? f(LineBlock<Narrow4Source<true>, Limbs>{}) : f(LineBlock<Narrow4Source<false>, Limbs>{});
  }
};

}  // namespace sf::gemm_blocks
