// The variant's arithmetic limit: see portable/peak.h. Assembly, so that no compiler moves a sum to memory.
#pragma once
#include "../avx512/vector_peak.h"

namespace sf {

// Bytes to words, words to doublewords, and the sum: three instructions for 64 products.
inline int64_t int8_peak(int64_t iterations) {
  for (int64_t i = 0; i < iterations; ++i)
    __asm__ volatile(
        ".irp sum, 0, 1, 2, 3, 4, 5, 6, 7\n"
        "vpmaddubsw %%zmm14, %%zmm15, %%zmm12\n"
        "vpmaddwd %%zmm13, %%zmm12, %%zmm12\n"
        "vpaddd %%zmm12, %%zmm\\sum, %%zmm\\sum\n"
        ".endr" ::
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm12");
  return iterations * 8 * 128;
}

}  // namespace sf
