// Loops of 512-bit instructions: twelve sums in flight hide the latency of both ports.
#pragma once
#include <cstdint>

#define SF_TWELVE_SUMS "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11"

namespace sf {

inline int64_t dot_product_peak(int64_t iterations) {
  for (int64_t i = 0; i < iterations; ++i)
    __asm__ volatile(
        ".irp sum, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11\n"
        "vpdpbusd %%zmm15, %%zmm15, %%zmm\\sum\n"
        ".endr" ::
            : SF_TWELVE_SUMS);
  return iterations * 12 * 128;
}

inline int64_t float_peak(int64_t iterations) {
  __asm__ volatile("vzeroall" ::: SF_TWELVE_SUMS, "xmm12", "xmm13", "xmm14", "xmm15");
  for (int64_t i = 0; i < iterations; ++i)
    __asm__ volatile(
        ".irp sum, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11\n"
        "vfmadd231ps %%zmm15, %%zmm15, %%zmm\\sum\n"
        ".endr" ::
            : SF_TWELVE_SUMS);
  return iterations * 12 * 32;
}

}  // namespace sf

#undef SF_TWELVE_SUMS
