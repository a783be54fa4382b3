// One tile of a panel from its codes: 32 outputs by 64 columns, as pack.h lays them out.
#pragma once
#include "kernels/pack.h"

namespace sf {

// Some bits of a tile's codes, from bit `first` on, as a plane of `width` bits.
inline void write_plane(const uint8_t* codes, int64_t stride, int first, int width, uint8_t* plane) {
  const int each = 4 / width;
  const uint32_t mask = 0x01010101u * ((1u << width) - 1);
  std::memset(plane, 0, plane_bytes(width));
  for (int line = 0; line < kTileLines; ++line)
    for (int output = 0; output < kHalf; ++output) {
      uint32_t low, high, before;  // four columns of half 0 and of half 1
      std::memcpy(&low, codes + output * stride + 4 * line, 4);
      std::memcpy(&high, codes + (output + kHalf) * stride + 4 * line, 4);
      uint8_t* at = plane + line / each * kLine + 4 * output;
      std::memcpy(&before, at, 4);
      before |= ((low >> first & mask) | (high >> first & mask) << 4) << (line % each * width);
      std::memcpy(at, &before, 4);
    }
}

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

// The same in a format whose codes are narrow.
inline void write_tile(const uint8_t* codes, int64_t stride, const PackedHeader& h, uint8_t* tile) {
  if (!h.has_narrow_codes()) return write_tile(codes, stride, h.bits, tile);
  write_plane(codes, stride, 0, h.low_width(), tile);
  if (h.high_width()) write_plane(codes, stride, h.low_width(), h.high_width(), tile + plane_bytes(h.low_width()));
}

}  // namespace sf
