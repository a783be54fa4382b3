// One tile of a panel from its codes: 32 outputs by 64 columns, as pack.h lays them out.
#pragma once
#include "kernels/pack.h"

namespace sf {

// codes: [32][stride] bytes, of which the first 64 columns are written.
inline void write_tile(const uint8_t* codes, int64_t stride, int bits, uint8_t* tile) {
  for (int line = 0; line < kTileLines; ++line)
    for (int output = 0; output < kHalf; ++output) {
      uint32_t low, high;  // four columns of half 0 and of half 1
      std::memcpy(&low, codes + output * stride + 4 * line, 4);
      std::memcpy(&high, codes + (output + kHalf) * stride + 4 * line, 4);
      uint8_t* at = tile + line * kLine + 4 * output;
      if (bits == 4) {
        low |= high << 4;
        std::memcpy(at, &low, 4);
      } else {
        std::memcpy(at, &low, 4);
        std::memcpy(at + kPlaneBytes, &high, 4);
      }
    }
}

}  // namespace sf
