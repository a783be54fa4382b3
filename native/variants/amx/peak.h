// The variant's arithmetic limit: see portable/peak.h. Four accumulators hide the latency of a tile product.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "../avx512/vector_peak.h"
#include "tiles.h"

namespace sf {

inline int64_t int8_peak(int64_t iterations) {
  tiles::configure(16);
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  tiles::release();
  return iterations * 4 * 16 * 16 * 128;
}

}  // namespace sf
