// The limit of 256-bit float products. Assembly: see peak.h.
#pragma once
#include <cstdint>

namespace sf {

inline int64_t float_peak(int64_t iterations) {
  __asm__ volatile("vzeroall" ::
                       : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                         "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  for (int64_t i = 0; i < iterations; ++i)
    __asm__ volatile(
        ".irp sum, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11\n"
        "vfmadd231ps %%ymm15, %%ymm15, %%ymm\\sum\n"
        ".endr" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11");
  return iterations * 12 * 16;
}

}  // namespace sf
