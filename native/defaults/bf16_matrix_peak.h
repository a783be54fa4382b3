// The limit of bfloat16 matrix products, counted as in portable/peak.h: for variants that have no such instructions.
#pragma once
#include <cstdint>

namespace sf {

inline constexpr bool kHasBf16Matrix = false;

inline int64_t bf16_matrix_peak(int64_t) { return 0; }

}  // namespace sf
