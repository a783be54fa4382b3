// The variant's arithmetic limit: see portable/peak.h. Four accumulators hide the latency of a tile product.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "../avx512/vector_peak.h"

namespace sf {

inline constexpr bool kHasBf16Matrix = true;

// All eight tiles 16 rows of 64 bytes, zeroed; the configuration found is put back at the end.
class FullTiles {
 public:
  FullTiles() {
    alignas(64) Config full = {};
    full.palette = 1;
    for (int tile = 0; tile < 8; ++tile) {
      full.row_bytes[tile] = 64;
      full.rows[tile] = 16;
    }
    _tile_storeconfig(&found_);
    load(full);
    zero_tiles();
  }
  ~FullTiles() { load(found_); }
  FullTiles(const FullTiles&) = delete;
  FullTiles& operator=(const FullTiles&) = delete;

 private:
  struct Config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
  static_assert(sizeof(Config) == 64);

  static void zero_tiles() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
  }

  static void load(const Config& config) {
    __asm__ volatile("" : : : "memory");  // gcc 12 takes only the first 8 bytes for read and drops the other stores
    _tile_loadconfig(&config);
  }

  alignas(64) Config found_;
};

inline int64_t int8_peak(int64_t iterations) {
  FullTiles tiles;
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  return iterations * 4 * 16 * 16 * 128;
}

inline int64_t bf16_matrix_peak(int64_t iterations) {
  FullTiles tiles;
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return iterations * 4 * 16 * 16 * 64;
}

}  // namespace sf
