// The integer matmul's parts that every variant shares: a problem, the dot products of a few rows with a panel, and the
// one float epilogue. docs/design/integer-matmul.md has the formulas.
#pragma once
#include <array>
#include <utility>

#include "kernels/quantise.h"
#include "kernels/sources.h"

namespace sf {

inline constexpr int64_t kCachedResults = 1 << 17;  // floats
// So many rows are multiplied while the weights pass by once; more of them are worth expanding the weights first.
inline constexpr int64_t kFewRows = kRowBlock > 2 ? kRowBlock : 2;

// One matrix times some rows. linear has one, linear_experts one per expert.
struct Problem {
  sf_activations x;
  const PackedHeader* w;
  const float* bias;
  const float* residual;
  float* y;
  int64_t rows, y_stride, residual_stride;
  const int32_t* prepared = nullptr;  // of the rows, for all tasks: see gemv_codes.h

  // A large result would push the rows and weights still in use out of L2.
  bool past_cache() const { return rows * w->n > kCachedResults && aligned64(y) && y_stride % kHalf == 0; }
  int64_t lines() const { return w->num_tiles() * kTileLines; }
  const int8_t* row(int64_t r) const { return x.values + r * x.limbs * x.stride; }
  int64_t groups() const { return num_groups(w->k, x.group); }
  // Lines of activation group g. Groups are multiples of 64 columns, so they are whole tiles.
  int64_t group_first(int64_t g) const { return x.group ? g * x.group / 4 : 0; }
  int64_t group_last(int64_t g) const { return g + 1 < groups() ? (g + 1) * x.group / 4 : lines(); }
};

// One task's share of a problem.
struct Share {
  int64_t first_panel, last_panel, first_row, last_row;
};

// The int32 sums k0, k1 (and k2, where both sides have two limbs) of one row with the 32 outputs of a panel.
template <int Count>
struct Sums {
  alignas(64) int32_t k[Count][kPanel];
};
template <int XLimbs, int WLimbs>
using SumsOf = Sums<XLimbs == 2 && WLimbs == 2 ? 3 : 2>;
// Float sums over groups of one-limb activations.
struct Partial {
  alignas(64) float v[kPanel];
};

// Where a side has one limb: float(k0) * 128 + float(k1), or float(k0) where both have one.
inline Lanes combine_limbs(Ints k0, Ints k1) { return fma(to_float(k0), set1(128.0f), to_float(k1)); }
template <int XLimbs, int WLimbs>
inline Lanes combine(const Sums<2>& s, int half) {
  const Ints k0 = loadi(s.k[0] + half * kHalf);
  if constexpr (XLimbs == 1 && WLimbs == 1) return to_float(k0);
  return combine_limbs(k0, loadi(s.k[1] + half * kHalf));
}
// Where both have two: 2^14 k0 + 2^7 k1 + k2 is the exact sum, of less than 53 bits, and is rounded once.
template <int XLimbs, int WLimbs>
inline Lanes combine(const Sums<3>& s, int half) {
  const int at = half * kHalf;
  return to_float(
      add_scaled(add_scaled(to_double(loadi(s.k[2] + at)), loadi(s.k[1] + at), 128.0), loadi(s.k[0] + at), 16384.0));
}

// What the rows of one panel have in common at their end: row scales, bias, how many outputs there are.
struct PanelEnd {
  const Problem& p;
  int64_t output;
  bool past_cache;
  int left[2];
  Lanes scale[2], bias[2];

  PanelEnd(const Problem& problem, int64_t panel)
      : p(problem), output(panel * kPanel), past_cache(problem.past_cache()) {
    for (int half = 0; half < 2; ++half) {
      const int64_t at = output + half * kHalf;
      left[half] = at < p.w->n ? lanes_left(p.w->n, at) : 0;
      scale[half] = load(p.w->scales() + at);  // padded to whole panels
      bias[half] = p.bias ? load_n(p.bias + (left[half] ? at : 0), left[half]) : zero();
    }
  }

  // Bias, residual and the store: the end of every path.
  void write(int64_t row, int half, Lanes y) const {
    const int64_t at = output + half * kHalf;
    if (p.bias) y = add(y, bias[half]);
    if (p.residual) y = add(load_n(p.residual + row * p.residual_stride + (left[half] ? at : 0), left[half]), y);
    float* out = p.y + row * p.y_stride + (left[half] ? at : 0);
    if (left[half] < kLanes) return store_n(out, y, left[half]);
    past_cache ? store_past_cache(out, y) : store(out, y);
  }
};

// y = sum * (x_scale * row_scale)
inline void finish_sum(const PanelEnd& end, int64_t row, int half, Lanes sum) {
  end.write(row, half, mul(sum, mul(set1(end.p.x.scales[row]), end.scale[half])));
}

template <int WLimbs>
inline void finish_half(const PanelEnd& end, int64_t row, int half, const SumsOf<2, WLimbs>& s) {
  finish_sum(end, row, half, combine<2, WLimbs>(s, half));
}
template <int WLimbs>
inline void finish_two_limbs(const PanelEnd& end, int64_t row, const SumsOf<2, WLimbs>& s) {
  for (int half = 0; half < 2; ++half) finish_half<WLimbs>(end, row, half, s);
}

// The exact sums of both halves: as two limbs by two, however they were added up.
inline void finish_exact(const PanelEnd& end, int64_t row, const Doubles (&sums)[2]) {
  for (int half = 0; half < 2; ++half) finish_sum(end, row, half, to_float(sums[half]));
}

// One group of one-limb activations added to the row's partial sums.
template <int WLimbs>
inline void add_group(const Sums<2>& s, float x_scale, Partial& partial) {
  for (int half = 0; half < 2; ++half) {
    float* v = partial.v + half * kHalf;
    store(v, fma(combine<1, WLimbs>(s, half), set1(x_scale), load(v)));
  }
}

inline void finish_one_limb(const PanelEnd& end, int64_t row, const Partial& partial) {
  for (int half = 0; half < 2; ++half) end.write(row, half, mul(load(partial.v + half * kHalf), end.scale[half]));
}

// {make(first), make(first + 1), ...}
template <int Count, class Maker>
auto make_each(const Maker& make, int64_t first) {
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return std::array<decltype(make(0)), Count>{make(first + static_cast<int64_t>(I))...};
  }(std::make_index_sequence<Count>{});
}

inline int32_t four_bytes(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return four;
}

// The sums of Rows rows with Panels panels over the lines first to last, where at most one side has two limbs:
// out[panel * Rows + row].
template <int Rows, int Panels, int XLimbs, class Source>
void dot_rows(const Source* sources, int64_t first, int64_t last, const int8_t* x, int64_t row_stride,
              int64_t limb_stride, Sums<2>* out) {
  constexpr int kWLimbs = Source::kLimbs;
  static_assert(XLimbs == 1 || kWLimbs == 1);
  Ints k0[Panels][Rows][2], k1[Panels][Rows][2];
  for (int panel = 0; panel < Panels; ++panel)
    for (int r = 0; r < Rows; ++r)
      for (int half = 0; half < 2; ++half) k0[panel][r][half] = k1[panel][r][half] = set1i(0);
  each_line<Panels>(sources, first, last, [&](int64_t line, int panel, const Line(&w)[2][kWLimbs]) {
    Ready ready_w[2][kWLimbs];
    for (int half = 0; half < 2; ++half)
      for (int limb = 0; limb < kWLimbs; ++limb) ready_w[half][limb] = ready(w[half][limb]);
    for (int r = 0; r < Rows; ++r) {
      const int8_t* at = x + r * row_stride + 4 * line;
      const int32_t high = four_bytes(at), low = XLimbs == 2 ? four_bytes(at + limb_stride) : 0;
      for (int half = 0; half < 2; ++half) {
        Ints &a = k0[panel][r][half], &b = k1[panel][r][half];
        a = dot4(a, ready_w[half][0], high);
        if constexpr (kWLimbs == 2) b = dot4(b, ready_w[half][1], high);
        if constexpr (XLimbs == 2) b = dot4(b, ready_w[half][0], low);
      }
    }
  });
  for (int r = 0; r < Rows; ++r) {
    const int8_t* at = x + r * row_stride + 4 * first;
    const int32_t high = ready_excess(at, 4 * (last - first));
    const int32_t low = XLimbs == 2 ? ready_excess(at + limb_stride, 4 * (last - first)) : 0;
    const Ints extra0 = set1i(high), extra1 = set1i(kWLimbs == 2 ? high : low);
    for (int panel = 0; panel < Panels; ++panel)
      for (int half = 0; half < 2; ++half) {
        auto& sums = out[panel * Rows + r];
        storei(sums.k[0] + half * kHalf, subi(k0[panel][r][half], extra0));
        storei(sums.k[1] + half * kHalf, subi(k1[panel][r][half], extra1));
      }
  }
}

}  // namespace sf
