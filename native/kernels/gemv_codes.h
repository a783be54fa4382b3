// Products of rows of two limbs with grouped codes, in vector registers: no expanded weights are stored. Integer sums
// are exact in any order.
//
// 4-bit codes: a weight is table[code] * M + Z. So a group adds M * (sum of table[code] * x) + Z * (sum of x) to the
// sum of a limb. M and Z are applied once per span of lines. The sums of x are computed once for all panels.
//
// Linear codes (table[code] = code + t; `Direct`) need no table: the weight is (code - 8) * M + Z', where
// Z' = Z + (t + 8) * M. |code - 8| <= 8 keeps the sums of a span (32 columns) within 16 bits. Linear weights of one
// limb use this path too while rows are few: expanding them takes twice the instructions of one row's products.
//
// 8-bit codes: the weight is expanded to an int16 word and multiplied by x as a word (int16_words.h).
#pragma once
#include <algorithm>

#include "core/context.h"
#include "kernels/int16_words.h"
#include "kernels/linear.h"
#include "planes.h"  // of the variant

namespace sf {

inline constexpr int64_t kInt32Lines = 256;  // 1024 columns of 127 * kLargestWeight stay within int32

inline constexpr int kBothLimbRows = 7;  // rows whose sums of both limbs fit into 32 registers

inline int64_t span_lines(const Problem& p) { return p.w->group == 16 ? 4 : 8; }
inline int64_t num_spans(const Problem& p) { return p.lines() / span_lines(p); }

// Rows that share one pass over linear codes: kCodeRows, and at most kBothLimbRows if spans are short, since more rows
// are faster with unpacked weights.
inline int64_t few_code_rows(const Problem& p) {
  return std::max<int64_t>(kFewRows, span_lines(p) == 8 ? kCodeRows : std::min(kCodeRows, kBothLimbRows));
}
// Whether this file's kernels run the problem.
inline bool by_codes(const Problem& p) {
  return p.x.limbs == 2 && (p.w->limbs == 2 || (p.rows <= few_code_rows(p) && p.w->is_linear()));
}

// Prefetch distances in bytes: from a span's codes and parameters to those that are read kAhead bytes of codes later.
struct PrefetchOffsets {
  int64_t codes, parameters;
};

// A block of rows, and the integers that a method has prepared for them: row_prepared integers per row.
struct CodeRows {
  const int8_t* x;
  const int32_t* prepared;
  int64_t row_stride, limb_stride, row_prepared;
};

// Keeps gcc from making a pointer for each line of an unrolled span; they would be spilled.
template <class T>
inline T* in_register(T* p) {
  __asm__("" : "+r"(p));
  return p;
}

template <int Rows>
using LimbSums = Ints[Rows][2][2];  // [row][limb][half]

// The sums of x over each span of a row, [span][limb]: the sum in the high 16 bits, -centre times it in the low 16.
struct SpanSums {
  static constexpr int64_t kRows = 64;  // rows that share one pass over a task's weights

  static int64_t row_prepared(const Problem& p) { return num_spans(p) * 2; }
  static void prepare(const Problem& p, int64_t row, int32_t* sums) {
    span_lines(p) == 8 ? prepare<8>(p, p.row(row), sums) : prepare<4>(p, p.row(row), sums);
  }
  template <int Span>
  static void prepare(const Problem& p, const int8_t* x, int32_t* sums) {
    const Ints minus_centre = set1i(-p.w->code_centre());
    for (int64_t line = 0; line < p.lines(); line += kTileLines)
      for (int limb = 0; limb < 2; ++limb) {
        const Ints sum = add_spans<Span>(x + limb * p.x.stride + 4 * line);
        int32_t pairs[kTileLines];
        storei(pairs, addi(shl<16>(sum), andi(muli(sum, minus_centre), set1i(0xFFFF))));
        for (int64_t at = 0; at < kTileLines; at += Span) sums[(line + at) / Span * 2 + limb] = pairs[at];
      }
  }
  static Doubles add_to(const Doubles& total, const Ints& high, const Ints& low) {
    return add_scaled(add_scaled(total, high, 128.0), low, 1.0);
  }
  static int32_t of(const CodeRows& x, int64_t row, int64_t span, int limb) {
    return x.prepared[row * x.row_prepared + span * 2 + limb];
  }
};

// Loads M and Z' of sixteen outputs, interleaved as pairs of 16 bits.
struct WidePairs {
  using Source = WideSource<4>;
  static Ints load(const Source& w, const uint8_t* half) {
    return load_pairs(half, w.with_offsets, w.first_entry + w.code_centre);
  }
};
struct NarrowPairs {
  using Source = Narrow4Source<true>;
  // The table of one-limb weights starts at zero.
  static Ints load(const Source&, const uint8_t* half) { return load_narrow_pairs(half, 8); }
};

// Linear codes: codes are multiplied without a table.
template <class Pairs>
struct Direct : SpanSums {
  using Source = typename Pairs::Source;
  static constexpr int64_t kLineBytes = kLine;
  static constexpr int kBlock = kCodeRows;  // most rows multiplied in one pass over the codes

  template <int Rows, int Span>
  [[gnu::always_inline]] static inline void add(const Source& w, const CodeRows& x, int64_t span,
                                                const uint8_t* parameters, const PrefetchOffsets& ahead,
                                                LimbSums<Rows>& sums) {
    constexpr int kLimbs = Rows <= kBothLimbRows ? 2 : 1;  // 1: the codes are read again for the second limb
    const int64_t stride = x.row_stride;
    for (int first = 0; first < 2; first += kLimbs) {
      CodeSums lower[Rows][kLimbs], upper[Rows][kLimbs];
      // Three rows share a pointer: an address can add a register times 0, 1 or 2 to it.
      const int8_t* fours[(Rows + 2) / 3][kLimbs];
      for (int limb = 0; limb < kLimbs; ++limb) {
        for (int r = 0; r < Rows; ++r) lower[r][limb] = upper[r][limb] = no_codes();
        for (int r = 0; r < Rows; r += 3)
          fours[r / 3][limb] = in_register(x.x + span * Span * 4 + r * stride + (first + limb) * x.limb_stride);
      }
      const uint8_t *codes = in_register(w.codes + span * Span * kLine), *later = in_register(codes + ahead.codes);
#pragma GCC unroll 8
      for (int i = 0; i < Span; ++i) {
        if (!first) prefetch(later + i * kLine);
        const Line both = load_line(codes + i * kLine), low = low_nibbles(both), high = upper_codes(both);
        for (int r = 0; r < Rows; ++r)
          for (int limb = 0; limb < kLimbs; ++limb) {
            const int32_t four = four_bytes(fours[r / 3][limb] + r % 3 * stride + 4 * i);
            lower[r][limb] = dot_codes(lower[r][limb], low, four);
            upper[r][limb] = dot_codes(upper[r][limb], high, four);
          }
      }
      const Ints pairs[2] = {Pairs::load(w, parameters), Pairs::load(w, parameters + w.half_bytes)};
      for (int r = 0; r < Rows; ++r)
        for (int limb = 0; limb < kLimbs; ++limb) {
          const int32_t extra = of(x, r, span, first + limb);
          Ints both[2];
          code_sums(lower[r][limb], upper[r][limb], both);
          for (int half = 0; half < 2; ++half)
            sums[r][first + limb][half] =
                dot_pairs(sums[r][first + limb][half], pair_up(both[half], extra), pairs[half]);
        }
    }
  }
};

// Other 4-bit codes: values are looked up in a table.
struct LookedUp : SpanSums {
  using Source = WideSource<4>;
  static constexpr int64_t kLineBytes = kLine;
  static constexpr int kBlock = kRowBlock;

  template <int Rows, int Span>
  [[gnu::always_inline]] static inline void add(const Source& w, const CodeRows& x, int64_t span,
                                                const uint8_t* parameters, const PrefetchOffsets& ahead,
                                                LimbSums<Rows>& sums) {
    Ints s[Rows][2][2];
    for (int r = 0; r < Rows; ++r)
      for (int limb = 0; limb < 2; ++limb) s[r][limb][0] = s[r][limb][1] = set1i(0);
    const uint8_t* codes = in_register(w.codes + span * Span * kLine);
    const int8_t* fours = in_register(x.x + span * Span * 4);
#pragma GCC unroll 8
    for (int i = 0; i < Span; ++i) {
      prefetch(codes + i * kLine + ahead.codes);
      const Line both = load_line(codes + i * kLine);
      const Line values[2] = {look_up(w.table, low_nibbles(both)), look_up(w.table, high_nibbles(both))};
      const Ready weights[2] = {ready(values[0]), ready(values[1])};
      for (int r = 0; r < Rows; ++r)
        for (int limb = 0; limb < 2; ++limb) {
          const int32_t four = four_bytes(fours + r * x.row_stride + limb * x.limb_stride + 4 * i);
          for (int half = 0; half < 2; ++half) s[r][limb][half] = dot4(s[r][limb][half], weights[half], four);
        }
    }
    for (int half = 0; half < 2; ++half) {
      const uint8_t* at = parameters + half * w.half_bytes;
      const Ints multiplier = load_words(at), offset = w.with_offsets ? load_words(at + 32) : set1i(0);
      for (int r = 0; r < Rows; ++r)
        for (int limb = 0; limb < 2; ++limb) {
          const int32_t sum = of(x, r, span, limb) >> 16;
          const Ints exact = subi(s[r][limb][half], set1i(kReadyBias * sum));
          const Ints added = addi(muli(multiplier, exact), muli(offset, set1i(sum)));
          sums[r][limb][half] = addi(sums[r][limb][half], added);
        }
    }
  }
};

// Lines of 8-bit codes from some line on, and of the three after it: as they are in memory or a tile's buffer.
struct WholeCodes {
  static constexpr int64_t kLineBytes = 2 * kLine;
  using Source = WideSource<8>;
  const uint8_t* at;
  int64_t ahead;

  WholeCodes(const Source& w, int64_t line, int64_t bytes_ahead)
      : at(w.codes + line / kTileLines * (2 * kPlaneBytes) + line % kTileLines * kLine), ahead(bytes_ahead) {}
  void skip_four() { at += 4 * kLine; }
  template <int I>
  [[gnu::always_inline]] inline void load(Line (&codes)[2]) const {
    for (int half = 0; half < 2; ++half) {
      const uint8_t* p = at + half * kPlaneBytes + I * kLine;
      prefetch(p + ahead);
      codes[half] = load_line(p);
    }
  }
};

// Codes of 4 bits and High more, made from their planes in registers.
template <int High, int Stretch>
struct PlaneCodes {
  static constexpr int64_t kLineBytes = (plane_bytes(4) + plane_bytes(High)) / kTileLines;
  struct Source : WideSource<8> {
    Source(const PackedHeader& h, int64_t panel) : WideSource<8>(h, panel) { narrow_codes = false; }
    bool enter(int64_t line) const { return enter(line, panel_bytes); }
    bool enter(int64_t line, int64_t to_next) const {
      if (!narrow_scales || line % kTileLines) return false;
      compact.enter_scales(line, to_next, parameters);
      return true;
    }
  };
  const uint8_t *low, *high;
  int64_t ahead;

  PlaneCodes(const Source& w, int64_t line, int64_t bytes_ahead) : ahead(bytes_ahead) {
    const uint8_t* tile = w.codes + line / kTileLines * (kTileLines * kLineBytes);
    low = in_register(tile + line % kTileLines * kLine);
    high = in_register(tile + plane_bytes(4) + line % kTileLines / 4 * (High * kLine));
  }
  void skip_four() { low += 4 * kLine, high += High * kLine; }
  template <int I>
  [[gnu::always_inline]] inline void load(Line (&codes)[2]) const {
    prefetch(low + I * kLine + ahead);
    if constexpr (I < High) prefetch(high + I * kLine + ahead);
    plane_codes<High, Stretch, I>(low, high, codes);
  }
};

// 8-bit codes. The sums of a span are T and H of its pieces (int16_words.h).
template <class Codes, bool WithOffsets>
struct Int16Weights {
  static constexpr int64_t kRows = 16;
  static constexpr int64_t kLineBytes = Codes::kLineBytes;
  static constexpr int kBlock = kRowBlock;
  using Source = typename Codes::Source;

  static int64_t row_prepared(const Problem& p) { return WordRow::count(p); }
  static void prepare(const Problem& p, int64_t row, int32_t* out) { WordRow::prepare(p, row, out); }

  template <int Rows, int Span>
  [[gnu::always_inline]] static inline void add(const Source& w, const CodeRows& x, int64_t span,
                                                const uint8_t* parameters, const PrefetchOffsets& ahead,
                                                LimbSums<Rows>& sums) {
    const Wide group[2] = {for_words(load_wide(parameters, WithOffsets)),
                           for_words(load_wide(parameters + w.half_bytes, WithOffsets))};
    const int64_t line = span * Span;
    Codes codes(w, line, ahead.codes);
    const int32_t* pairs = x.prepared + WordRow::at(line);
    const bool long_pieces = piece_lines<Rows>(x.prepared, x.row_prepared) >= 4;
    for (int i = 0; i < Span; i += 4, codes.skip_four(), pairs += 4) {
      if (long_pieces) {
        add_piece<Rows, 0, 1, 2, 3>(codes, group, pairs, x.row_prepared, sums);
      } else {
        add_piece<Rows, 0, 1>(codes, group, pairs, x.row_prepared, sums);
        add_piece<Rows, 2, 3>(codes, group, pairs, x.row_prepared, sums);
      }
    }
  }
  template <int Rows, int... Lines>
  [[gnu::always_inline]] static inline void add_piece(const Codes& codes, const Wide (&group)[2], const int32_t* pairs,
                                                      int64_t row_stride, LimbSums<Rows>& sums) {
    Ints piece[Rows][2];
    for (int r = 0; r < Rows; ++r) piece[r][0] = piece[r][1] = set1i(0);
    (add_line<Rows, Lines>(codes, group, pairs + Lines, row_stride, piece), ...);
    for (int r = 0; r < Rows; ++r)
      for (int half = 0; half < 2; ++half) {
        sums[r][0][half] = addi(sums[r][0][half], piece[r][half]);
        sums[r][1][half] = addi(sums[r][1][half], sar<16>(piece[r][half]));
      }
  }
  template <int Rows, int I>
  [[gnu::always_inline]] static inline void add_line(const Codes& codes, const Wide (&group)[2], const int32_t* pairs,
                                                     int64_t row_stride, Ints (&piece)[Rows][2]) {
    Line both[2];
    codes.template load<I>(both);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Ints even, odd;
      words<8, WithOffsets>(both[half], group[half], even, odd);
      for (int r = 0; r < Rows; ++r) {
        const int32_t* pair = pairs + r * row_stride;
        piece[r][half] = dot_pairs(dot_pairs(piece[r][half], even, set1i(pair[0])), odd, set1i(pair[kTileLines]));
      }
    }
  }
  static Doubles add_to(const Doubles& total, const Ints& t, const Ints& h) { return add_pieces(total, t, h); }
};

// Panels that are read together, span by span.
template <class Source>
struct Reading {
  const Source* sources;
  int panels;
  int64_t spans;    // of each panel
  int64_t to_next;  // bytes from a panel to the one that is read after it
};

// Sums of the products of a block of rows with these panels, over spans [first, last). Not inlined: gcc would keep the
// caller's totals in the registers that the sums of a span need.
template <class Method, int Rows, int Span>
[[gnu::noinline]] void sum_spans(const Reading<typename Method::Source>& w, const CodeRows& x, int64_t first,
                                 int64_t last, LimbSums<Rows>* sums) {
  for (int i = 0; i < w.panels; ++i)
    for (int r = 0; r < Rows; ++r)
      for (int limb = 0; limb < 2; ++limb) sums[i][r][limb][0] = sums[i][r][limb][1] = set1i(0);
  constexpr int64_t kSpanBytes = Span * Method::kLineBytes, kSpansAhead = kAhead / kSpanBytes;
  const int64_t group_spans = std::max<int64_t>(w.sources->group_lines / Span, 1),
                group_bytes = 2 * w.sources->half_bytes;
  const auto parameters_at = [=](int64_t span) {  // a division would delay the first product
    const int64_t group = group_spans == 1 ? span : static_cast<uint32_t>(span) / static_cast<uint32_t>(group_spans);
    return group * group_bytes;
  };
  for (int64_t span = first; span < last; ++span) {
    const int64_t at = parameters_at(span);
    PrefetchOffsets ahead{kAhead, parameters_at(span + kSpansAhead) - at};
    if (span + kSpansAhead >= w.spans) {
      ahead.codes += w.to_next - w.spans * kSpanBytes;
      ahead.parameters += w.to_next - parameters_at(w.spans);
    }
    if (w.sources->narrow_codes) ahead.codes = 0;  // a tile asks for those of later ones when it is entered
    if (w.sources->narrow_scales) ahead.parameters = 0;
    for (int i = 0; i < w.panels; ++i) {
      w.sources[i].enter(span * Span, w.to_next);
      const uint8_t* parameters = w.sources[i].parameters + at;
      prefetch(parameters + ahead.parameters);
      prefetch(parameters + ahead.parameters + group_bytes - kLine);
      Method::template add<Rows, Span>(w.sources[i], x, span, parameters, ahead, sums[i]);
    }
  }
}

// Weights of two limbs: the sums of every kInt32Lines lines are added to doubles before they can overflow.
template <class Method, int Rows, int Span>
void wide_codes_times_panels(const Problem& p, const Reading<typename Method::Source>& w, const CodeRows& x,
                             int64_t row, int64_t panel) {
  const int panels = w.panels;
  Doubles totals[kPanelBlock][Rows][2];
  for (int i = 0; i < panels; ++i)
    for (int r = 0; r < Rows; ++r) totals[i][r][0] = totals[i][r][1] = to_double(set1i(0));
  for (int64_t first = 0; first < w.spans; first += kInt32Lines / Span) {
    LimbSums<Rows> sums[kPanelBlock];
    sum_spans<Method, Rows, Span>(w, x, first, std::min(first + kInt32Lines / Span, w.spans), sums);
    for (int i = 0; i < panels; ++i)
      for (int r = 0; r < Rows; ++r)
        for (int half = 0; half < 2; ++half)
          totals[i][r][half] = Method::add_to(totals[i][r][half], sums[i][r][0][half], sums[i][r][1][half]);
  }
  for (int i = 0; i < panels; ++i) {
    const PanelEnd end(p, panel + i);
    for (int r = 0; r < Rows; ++r) finish_exact(end, row + r, totals[i][r]);
  }
}

// Weights of one limb: the sums of a whole row fit int32.
template <class Method, int Rows, int Span>
void narrow_codes_times_panels(const Problem& p, const Reading<typename Method::Source>& w, const CodeRows& x,
                               int64_t row, int64_t panel) {
  LimbSums<Rows> sums[kPanelBlock];
  sum_spans<Method, Rows, Span>(w, x, 0, w.spans, sums);
  for (int i = 0; i < w.panels; ++i) {
    const PanelEnd end(p, panel + i);
    for (int r = 0; r < Rows; ++r)
      for (int half = 0; half < 2; ++half)
        finish_sum(end, row + r, half, combine_limbs(sums[i][r][0][half], sums[i][r][1][half]));
  }
}

template <class Method, int Rows, int Span>
void codes_times_panels(const Problem& p, const CodeRows& x, int64_t row, int64_t panel, int panels) {
  using Source = typename Method::Source;
  const auto sources =
      make_each<kPanelBlock>([&](int64_t i) { return Source(*p.w, std::min(i, p.w->num_panels() - 1)); }, panel);
  const Reading<Source> w{sources.data(), panels, p.lines() / Span, panels * p.w->panel_bytes};
  if constexpr (Source::kLimbs == 2) wide_codes_times_panels<Method, Rows, Span>(p, w, x, row, panel);
  else narrow_codes_times_panels<Method, Rows, Span>(p, w, x, row, panel);
}

// Runs the kernel for min(rows, Method::kBlock) rows.
template <class Method, int Span, int Rows = Method::kBlock>
void some_rows_by_codes(const Problem& p, const CodeRows& x, int64_t row, int64_t rows, int64_t panel, int panels) {
  if constexpr (Rows > 1)
    if (rows < Rows) return some_rows_by_codes<Method, Span, Rows - 1>(p, x, row, rows, panel, panels);
  codes_times_panels<Method, Rows, Span>(p, x, row, panel, panels);
}

template <class Method>
void prepare_rows(const Problem& p, int64_t start, int64_t end, int32_t* prepared) {
  for (int64_t row = start; row < end; ++row)
    Method::prepare(p, row, prepared + (row - start) * Method::row_prepared(p));
}

template <class Method, int Span>
void run_by_codes(const Problem& p, const Share& share, int32_t* scratch) {
  const int64_t each = Method::row_prepared(p);
  for (int64_t start = 0; start < p.rows; start += Method::kRows) {
    const int64_t end = std::min(start + Method::kRows, p.rows);
    if (!p.prepared) prepare_rows<Method>(p, start, end, scratch);
    const int32_t* prepared = p.prepared ? p.prepared + start * each : scratch;
    for (int64_t panel = share.first_panel; panel < share.last_panel; panel += kPanelBlock) {
      const int panels = static_cast<int>(std::min<int64_t>(kPanelBlock, share.last_panel - panel));
      for (int64_t row = start; row < end; row += Method::kBlock) {
        const CodeRows x{p.row(row), prepared + (row - start) * each, 2 * p.x.stride, p.x.stride, each};
        some_rows_by_codes<Method, Span>(p, x, row, end - row, panel, panels);
      }
    }
  }
}

// Whether 8-bit codes are planes that this variant reads: with the first codes of ggml's types.
inline bool reads_planes(const PackedHeader& h) {
  return kReadsPlanes && h.bits == 8 && h.has_narrow_codes() && 128 - h.base == h.stretch << (h.width - 1) &&
         h.with_offsets == (h.stretch == 5);
}
// Calls f with the lines of 8-bit codes, and whether there are offsets.
template <class F>
auto with_codes(const PackedHeader& h, const F& f) {
  using std::bool_constant;
  if constexpr (kReadsPlanes)
    if (reads_planes(h)) {
      if (h.stretch == 5) return f(std::type_identity<PlaneCodes<1, 5>>{}, bool_constant<true>{});   // Q5_K, Q5_1
      if (h.stretch == 4) return f(std::type_identity<PlaneCodes<1, 4>>{}, bool_constant<false>{});  // Q5_0
      return f(std::type_identity<PlaneCodes<2, 2>>{}, bool_constant<false>{});                      // Q6_K
    }
  return h.with_offsets ? f(std::type_identity<WholeCodes>{}, bool_constant<true>{})
                        : f(std::type_identity<WholeCodes>{}, bool_constant<false>{});
}

// Calls f with the method for the weights' format.
template <class F>
auto with_method(const Problem& p, const F& f) {
  if (p.w->bits == 8)
    return with_codes(*p.w,
                      [&]<class Codes, bool WithOffsets>(std::type_identity<Codes>, std::bool_constant<WithOffsets>) {
                        return f(Int16Weights<Codes, WithOffsets>{});
                      });
  if (p.w->limbs == 1) return f(Direct<NarrowPairs>{});
  return p.w->is_linear() ? f(Direct<WidePairs>{}) : f(LookedUp{});
}

inline int64_t prepared_bytes(const Problem& p) {
  return with_method(p, [&]<class Method>(Method) -> int64_t {
    return std::min(p.rows, Method::kRows) * Method::row_prepared(p) * sizeof(int32_t);
  });
}

// Prepares one row. prepared: start of the buffer, where row 0's integers are.
inline void prepare_codes(const Problem& p, int64_t row, int32_t* prepared) {
  with_method(p, [&]<class Method>(Method) { Method::prepare(p, row, prepared + row * Method::row_prepared(p)); });
}

inline void run_by_codes(const Problem& p, const Share& share, int32_t* scratch) {
  with_method(p, [&]<class Method>(Method) {
    span_lines(p) == 8 ? run_by_codes<Method, 8>(p, share, scratch) : run_by_codes<Method, 4>(p, share, scratch);
  });
}

}  // namespace sf
