// See defaults/bf16_matrix_peak.h. Four accumulators hide the latency of a tile product.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "tiles.h"

namespace sf {

inline constexpr bool kHasBf16Matrix = true;

inline int64_t bf16_matrix_peak(int64_t iterations) {
  tiles::configure(16);
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  tiles::release();
  return iterations * 4 * 16 * 16 * 64;
}

}  // namespace sf
