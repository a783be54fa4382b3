// y[r][n] = dot(x[r], w[n]) + bias[n] in float. Each dot is the contract's: lane i sums the products of k = i, i + 16, ...
// by fma in ascending k, then the tree; the bias is added last. Tiles only decide which outputs are computed together,
// never an output's own order.
#pragma once
#include <cstring>

#include "core/ops.h"
#include "lanes.h"

namespace sf {

struct Float32Weights {
  using Element = float;
  static Lanes load(const float* p) { return sf::load(p); }
  static Lanes load_n(const float* p, int n) { return sf::load_n(p, n); }
};

struct Bfloat16Weights {
  using Element = uint16_t;
  static Lanes load(const uint16_t* p) { return load_bf16(p); }
  static Lanes load_n(const uint16_t* p, int n) {
    uint16_t filled[kLanes] = {};
    std::memcpy(filled, p, n * sizeof(uint16_t));
    return load_bf16(filled);
  }
};

// Rows and outputs of a tile: its accumulators, one row's x and one output's w must fit in the registers.
inline constexpr int kTileRows = kLaneRegisters >= 32 ? 4 : 1;
inline constexpr int kTileOutputs = kLaneRegisters >= 32 ? 4 : kLaneRegisters >= 8 ? 3 : 2;

// The tile of Rows x Outputs at row r, output n.
template <class Weights, int Rows, int Outputs>
void float_linear_tile(const sf_float_linear_args& args, int64_t r, int64_t n) {
  const float* x = args.x + r * args.x_stride;
  const auto* w = static_cast<const typename Weights::Element*>(args.w) + n * args.w_stride;
  Lanes sums[Rows][Outputs];
  for (auto& row : sums)
    for (auto& sum : row) sum = zero();
  const auto step = [&](const auto& load_x, const auto& load_w, int64_t k) {
    Lanes values[Rows];
    for (int i = 0; i < Rows; ++i) values[i] = load_x(x + i * args.x_stride + k);
    for (int j = 0; j < Outputs; ++j) {
      const Lanes weights = load_w(w + j * args.w_stride + k);
      for (int i = 0; i < Rows; ++i) sums[i][j] = fma(values[i], weights, sums[i][j]);
    }
  };
  int64_t k = 0;
  for (; k + kLanes <= args.k; k += kLanes)
    step([](const float* p) { return load(p); }, [](const auto* p) { return Weights::load(p); }, k);
  if (const int left = static_cast<int>(args.k - k))
    step([=](const float* p) { return load_n(p, left); }, [=](const auto* p) { return Weights::load_n(p, left); }, k);
  for (int i = 0; i < Rows; ++i)
    for (int j = 0; j < Outputs; ++j) {
      const float sum = reduce_add(sums[i][j]);
      args.y[(r + i) * args.y_stride + n + j] = args.bias ? sum + args.bias[n + j] : sum;
    }
}

// A strip of Rows rows over outputs n to n_end.
template <class Weights, int Rows>
void float_linear_strip(const sf_float_linear_args& args, int64_t r, int64_t n, int64_t n_end) {
  for (; n + kTileOutputs <= n_end; n += kTileOutputs) float_linear_tile<Weights, Rows, kTileOutputs>(args, r, n);
  for (; n < n_end; ++n) float_linear_tile<Weights, Rows, 1>(args, r, n);
}

template <class Weights>
void float_linear_block(const sf_float_linear_args& args, int64_t r, int64_t r_end, int64_t n, int64_t n_end) {
  for (; r + kTileRows <= r_end; r += kTileRows) float_linear_strip<Weights, kTileRows>(args, r, n, n_end);
  for (; r < r_end; ++r) float_linear_strip<Weights, 1>(args, r, n, n_end);
}

}  // namespace sf
