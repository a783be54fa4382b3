// The variant's arithmetic limit: see portable/peak.h. Assembly, so that no compiler moves a sum to memory.
#pragma once
#include "../avx2/float_peak.h"

namespace sf {

inline int64_t int8_peak(int64_t iterations) {
  for (int64_t i = 0; i < iterations; ++i)
    __asm__ volatile(
        ".irp sum, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11\n"
        "%{vex%} vpdpbusd %%ymm15, %%ymm15, %%ymm\\sum\n"
        ".endr" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11");
  return iterations * 12 * 64;
}

}  // namespace sf
