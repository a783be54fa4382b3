// y[r][n] = dot(x[r], w[n]) + bias[n] in float. Each dot is the contract's: lane i sums the products of k = i, i + 16,
// ... by fma in ascending k, then the tree; the bias is added last. Tiles and depths only decide which outputs are
// computed together and when their sixteen sums rest in memory, never an output's own order.
#pragma once
#include <algorithm>
#include <cstring>

#include "core/ops.h"
#include "lanes.h"  // of the variant

namespace sf::float_matmul {

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

// A tile's accumulators, its rows' x and one output's w must fit in the registers.
inline constexpr int kTileRows = kLaneRegisters >= 32 ? 4 : 2;
inline constexpr int kTileOutputs = kLaneRegisters >= 32 ? 4 : 2;
// A block is what one task computes; at one depth its weights lie in the first cache while the rows go by.
inline constexpr int64_t kBlockRows = 64;
inline constexpr int64_t kBlockOutputs = 16;
inline constexpr int64_t kDepth = 512;
static_assert(kDepth % kLanes == 0);

// Rows r to r_end, outputs n to n_end.
struct FloatBlock {
  int64_t r, r_end, n, n_end;
  float* sums;  // [rows][kBlockOutputs][16]
};

// Adds columns k to k_end to the sums of the Rows x Outputs tile at row r, output n.
template <class Weights, int Rows, int Outputs>
void add_tile(const sf_float_linear_args& args, float* sums, int64_t r, int64_t n, int64_t k, int64_t k_end) {
  const float* x = args.x + r * args.x_stride;
  const auto* w = static_cast<const typename Weights::Element*>(args.w) + n * args.w_stride;
  Lanes tile[Rows][Outputs];
  const auto each = [&](const auto& body) {
    for (int i = 0; i < Rows; ++i)
      for (int j = 0; j < Outputs; ++j) body(tile[i][j], sums + (i * kBlockOutputs + j) * kLanes);
  };
  const auto step = [&](const auto& load_x, const auto& load_w) {
    Lanes values[Rows];
    for (int i = 0; i < Rows; ++i) values[i] = load_x(x + i * args.x_stride + k);
    for (int j = 0; j < Outputs; ++j) {
      const Lanes weights = load_w(w + j * args.w_stride + k);
      for (int i = 0; i < Rows; ++i) tile[i][j] = fma(values[i], weights, tile[i][j]);
    }
  };
  each([&](Lanes& sum, const float* from) { sum = k ? load(from) : zero(); });
  for (; k + kLanes <= k_end; k += kLanes)
    step([](const float* p) { return load(p); }, [](const auto* p) { return Weights::load(p); });
  if (const int left = static_cast<int>(k_end - k))
    step([=](const float* p) { return load_n(p, left); }, [=](const auto* p) { return Weights::load_n(p, left); });
  each([](const Lanes& sum, float* to) { store(to, sum); });
}

template <class Weights, int Rows>
void add_strip(const sf_float_linear_args& args, const FloatBlock& block, int64_t r, int64_t k, int64_t k_end) {
  float* sums = block.sums + (r - block.r) * kBlockOutputs * kLanes;
  int64_t n = block.n;
  for (; n + kTileOutputs <= block.n_end; n += kTileOutputs, sums += kTileOutputs * kLanes)
    add_tile<Weights, Rows, kTileOutputs>(args, sums, r, n, k, k_end);
  for (; n < block.n_end; ++n, sums += kLanes) add_tile<Weights, Rows, 1>(args, sums, r, n, k, k_end);
}

inline void finish(const sf_float_linear_args& args, const FloatBlock& block) {
  for (int64_t r = block.r; r < block.r_end; ++r)
    for (int64_t n = block.n; n < block.n_end; ++n) {
      const float sum = reduce_add(load(block.sums + ((r - block.r) * kBlockOutputs + n - block.n) * kLanes));
      args.y[r * args.y_stride + n] = args.bias ? sum + args.bias[n] : sum;
    }
}

template <class Weights>
void float_linear_block(const sf_float_linear_args& args, const FloatBlock& block) {
  for (int64_t k = 0; k < args.k; k += kDepth) {
    const int64_t k_end = std::min(k + kDepth, args.k);
    int64_t r = block.r;
    for (; r + kTileRows <= block.r_end; r += kTileRows) add_strip<Weights, kTileRows>(args, block, r, k, k_end);
    for (; r < block.r_end; ++r) add_strip<Weights, 1>(args, block, r, k, k_end);
  }
  finish(args, block);
}

}  // namespace sf::float_matmul
