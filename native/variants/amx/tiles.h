// AMX in words: a tile is 16 rows of 64 bytes. Registers 0 to 3 hold sums, 4 and 5 rows of activations, 6 and 7
// weights; or 0 to 5 sums, 6 activations, 7 weights.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace sf::tiles {

inline constexpr int64_t kTileBytes = 1024;

struct Config {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(Config) == 64);

// Sums and activations of `rows` rows (1 to 16), weights of 16 lines from first_weight on. Clears every tile.
inline void configure(int rows, int first_weight = 6) {
  Config config;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = static_cast<uint8_t>(tile < first_weight ? rows : 16);
  }
  // Written out: gcc 12's intrinsic declares only 8 of the 64 bytes as read, and the rest may then never be stored.
  __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

inline void release() { _tile_release(); }

}  // namespace sf::tiles
