// The variant's arithmetic limit, for kernels/probe.cpp: loops that stay in registers (here: in the first-level cache).
// Each runs `iterations` rounds and returns the multiplications and additions done, each counted.
#pragma once
#include <cstdint>

#include "lanes.h"

namespace sf {

inline int64_t int8_peak(int64_t iterations) {
  alignas(64) int8_t a[256] = {1}, b[256] = {1};
  int32_t sum = 0;
  for (int64_t i = 0; i < iterations; ++i) {
    __asm__ volatile("" : : "r"(a), "r"(b) : "memory");
    for (int k = 0; k < 256; ++k) sum += a[k] * b[k];
  }
  __asm__ volatile("" : : "r"(sum));
  return iterations * 512;
}

inline int64_t float_peak(int64_t iterations) {
  Lanes sum = zero();
  for (int64_t i = 0; i < iterations; ++i) {
    sum = fma(sum, sum, sum);
    __asm__ volatile("" : : "r"(&sum) : "memory");
  }
  return iterations * kLanes * 2;
}

}  // namespace sf
