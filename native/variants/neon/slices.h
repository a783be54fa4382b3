// Many rows by products of limbs: kernels/gemm_tasks.h runs the form that is defined here.
//
// All rows have two limbs. Weights of two limbs are unpacked into limbs too, since a 16-bit product takes as many
// instructions on ARM as the four products of its limbs take by sdot, and twice as many as by smmla. The sums of each
// pair of limbs stay within int32 over the whole depth (kMaxColumns), so that no piece or group ever ends early.
//
// A step is kStep lines deep: one line for sdot, two for smmla (slice_products.h). In a step the weights of a panel are
// registers in the order [half][quad of outputs][limb][part of kStep]; four of them are a slice:
//   unpacked  [slice][step][4 registers]          so that a slice is read in one stream
//   rows      [step][high limb: 4 kStep columns][low limb]
#pragma once
#include <slice_products.h>  // the variant's own, not the one beside this file
#include "kernels/gemm_tasks.h"

namespace sf::slices {

using gemm_blocks::Chunk;
using gemm_blocks::RowGroup;

inline constexpr int kRegisters = 4, kRegisterBytes = 16, kSliceBytes = kRegisters * kRegisterBytes;
inline constexpr int kRowSums = 8 / kStep;  // registers of sums that a row has in a slice

// sums[row] += slice . row. Not inlined, so that all registers are there for the sums; the pragmas unroll early enough
// for gcc 12 to use them.
template <int Rows>
[[gnu::noinline]] void add_slice(const int8_t* slice, const int8_t* const (&rows)[Rows], int64_t steps, int32_t* sums,
                                 int64_t stride) {
  int32x4_t s[Rows][kRowSums];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int i = 0; i < kRowSums; ++i) s[r][i] = vld1q_s32(sums + r * stride + 4 * i);
  for (int64_t step = 0; step < steps; ++step, slice += kSliceBytes) {
    int8x16_t weights[kRegisters];
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) weights[i] = vld1q_s8(slice + kRegisterBytes * i);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) add_products(s[r], weights, rows[r] + 8 * kStep * step);
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
    for (int i = 0; i < kRowSums; ++i) vst1q_s32(sums + r * stride + 4 * i, s[r][i]);
}

template <class WeightSource>
struct SliceBlock {
  using Source = WeightSource;
  static constexpr int kLimbs = Source::kLimbs;
  static constexpr int kRows = kSliceRows;
  static constexpr int64_t kLines = 128 / kLimbs;                     // 16 KB
  static constexpr int kSums = kPanel * 2 * kLimbs;                   // of a row with a panel
  static constexpr int kNumSlices = 8 * kLimbs * kStep / kRegisters;  // of a panel
  static constexpr int kSliceSums = kSums / kNumSlices;
  struct Waiting {
    alignas(64) int32_t sums[kSums];  // [register][what sum_of reads]
  };

  static int64_t row_prepared(const Problem& p) { return 2 * p.lines(); }
  static void prepare(const Problem& p, const RowGroup& group, int64_t row, int32_t* out) {
    out += (row - group.first) * row_prepared(p);
    const int8_t *high = p.row(row), *low = high + p.x.stride;
    for (int64_t line = 0; line < p.lines(); line += kStep, out += 2 * kStep) {
      std::memcpy(out, high + 4 * line, 4 * kStep);
      std::memcpy(out + kStep, low + 4 * line, 4 * kStep);
    }
  }

  static int64_t unpacked_bytes(const Problem&, int64_t lines) { return 2 * kLimbs * kLine * lines; }
  static void unpack(const Problem&, const Source& w, const Chunk& c, uint8_t* out) {
    const int64_t span = w.span(), slice_bytes = c.lines / kStep * kSliceBytes;
    for (int64_t start = c.first; start < c.first + c.lines; start += span) {
      const typename Source::Group group = w.group(start);
      for (int64_t line = start; line < start + span; line += kStep, out += kSliceBytes) {
        Line lines[kStep][2][kLimbs];
        for (int i = 0; i < kStep; ++i) w.weights(line + i, group, lines[i]);
        store_step(lines, out, slice_bytes);
      }
    }
  }
  static void store_step(const Line (&lines)[kStep][2][kLimbs], uint8_t* out, int64_t slice_bytes) {
#pragma GCC unroll 8
    for (int quad = 0; quad < 8; ++quad)
#pragma GCC unroll 2
      for (int limb = 0; limb < kLimbs; ++limb) {
        int8x16_t parts[kStep];
        for (int i = 0; i < kStep; ++i) parts[i] = lines[i][quad / 4][limb].v[quad % 4];
        interleave(parts);
        for (int i = 0; i < kStep; ++i) {
          const int at = (quad * kLimbs + limb) * kStep + i;
          uint8_t* to = out + at / kRegisters * slice_bytes + at % kRegisters * kRegisterBytes;
          vst1q_s8(reinterpret_cast<int8_t*>(to), parts[i]);
        }
      }
  }

  template <int Rows>
  static void multiply(const Problem&, const uint8_t* unpacked, const Chunk& c, CodeRows x, Waiting* waiting) {
    if (c.opens) std::memset(static_cast<void*>(waiting), 0, Rows * sizeof(Waiting));
    const int64_t steps = c.lines / kStep;
    const int8_t* rows[Rows];
    for (int r = 0; r < Rows; ++r)
      rows[r] = reinterpret_cast<const int8_t*>(x.prepared + r * x.row_prepared + 2 * c.first);
    for (int slice = 0; slice < kNumSlices; ++slice)
      add_slice<Rows>(reinterpret_cast<const int8_t*>(unpacked + slice * steps * kSliceBytes), rows, steps,
                      waiting->sums + slice * kSliceSums, kSums);
  }

  // The sums of a row's limb with a limb of a half's weights.
  static Ints sums_of(const Waiting& sums, int half, int row_limb, int weight_limb) {
    Ints r;
    for (int quad = 0; quad < 4; ++quad)
      r.v[quad] = quad_sums(sums.sums + ((half * 4 + quad) * kLimbs + weight_limb) * 8, row_limb);
    return r;
  }
  static Lanes total(const Waiting& sums, int half) {
    const Ints k0 = sums_of(sums, half, 0, 0), low = sums_of(sums, half, 1, 0);
    if constexpr (kLimbs == 1) return combine_limbs(k0, low);
    const Ints k1 = addi(low, sums_of(sums, half, 0, kLimbs - 1)), k2 = sums_of(sums, half, 1, kLimbs - 1);
    return to_float(add_scaled(add_scaled(to_double(k2), k1, 128.0), k0, 16384.0));
  }
  static void finish(const PanelEnd& end, int64_t row, const CodeRows&, const Waiting& sums) {
    for (int half = 0; half < 2; ++half) finish_sum(end, row, half, total(sums, half));
  }
};

struct Forms {
  static bool applies(const Problem& p) { return p.x.limbs == 2 && p.rows > kFewRows; }

  // f(form)
  template <class F>
  static auto with_block(const Problem& p, const F& f) {
    const PackedHeader& w = *p.w;
    if (w.bits == 8) return w.limbs == 1 ? f(SliceBlock<PlainSource<1>>{}) : f(SliceBlock<WideSource<8>>{});
    if (w.limbs == 2) return f(SliceBlock<WideSource<4>>{});
    return w.is_linear() ? f(SliceBlock<Narrow4Source<true>>{}) : f(SliceBlock<Narrow4Source<false>>{});
  }
};

}  // namespace sf::slices
