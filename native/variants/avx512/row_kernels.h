// What kernels/row_blocks.h needs besides dot.h: how many rows stay in registers, and the ends of their sums.
#pragma once
#include "dot.h"

namespace sf {

// Rows by 32 outputs, in 24 of the 32 registers. Three rows of codes whose totals are held there too take fewer
// instructions; they have not been timed on a processor with VNNI (docs/design/many_rows.md).
inline constexpr int kCodeRows = 6, kWordRows = 4, kLineRows = 6;
inline constexpr bool kHoldsTotals = false;
inline constexpr int64_t kChunkLines = 256;  // of 4 columns

inline constexpr int64_t kFewCodeRows = 8;

// A span's sum of (code - kCodeMiddle) * x fits 16 bits, and meets its multiplier beside X, which meets the offset.
inline constexpr bool kOffsetsFirst = false;
inline constexpr int kCodeMiddle = 8;
inline Ints code_multipliers(Ints pairs) { return pairs; }
inline int32_t code_extra(int32_t sum) {
  return static_cast<int32_t>((-kCodeMiddle * sum & 0xFFFF) | static_cast<uint32_t>(sum) << 16);
}
inline Ints add_codes(Ints sum, CodeSums codes, const int32_t* extra, Ints multipliers) {
  return dot_pairs(sum, pair_up(codes, *extra), multipliers);
}

// Rows as they are, codes in registers.
inline constexpr bool kBiasedRows = false;
using RowCodes = Line;
inline RowCodes load_codes(const uint8_t* p) { return load_line(p); }
inline CodeSums start_codes(const uint8_t*) { return no_codes(); }
inline void store_start(uint8_t*, CodeSums) {}
inline CodeSums subtract_bias(CodeSums sum, Line) { return sum; }
inline CodeSums dot_row(CodeSums sum, RowCodes codes, int32_t four) { return dot_codes(sum, codes, four); }

inline Ints times_pairs(Ints a, Ints b) { return {_mm512_madd_epi16(a.v, b.v)}; }
// sum + (a >> 16)
inline Ints add_high_words(Ints sum, Ints a) { return dot_pairs(sum, a, set1i(1 << 16)); }

// Sums that go on: nothing to do. Where a sum is an addition of its own, the compiler must not add up in another order.
inline void keep(Ints (&)[2]) {}

inline void store_ready(void* p, Line l) { store_line(p, {ready(l).v}); }
inline Ready load_ready(const void* p) { return {load_line(p).v}; }

}  // namespace sf
