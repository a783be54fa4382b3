// The limit of 128-bit float products. Assembly: see peak.h.
#pragma once
#include <cstdint>

namespace sf {

inline int64_t float_peak(int64_t iterations) {
  for (int64_t i = 0; i < iterations; ++i)
    __asm__ volatile(
        ".irp sum, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23\n"
        "fmla v\\sum\\().4s, v31.4s, v31.4s\n"
        ".endr" ::
            : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23");
  return iterations * 16 * 8;
}

}  // namespace sf
