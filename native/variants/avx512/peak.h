// The variant's arithmetic limit: see portable/peak.h. Assembly, so that no compiler moves a sum to memory.
#pragma once
#include "vector_peak.h"

namespace sf {

inline int64_t int8_peak(int64_t iterations) { return dot_product_peak(iterations); }
}  // namespace sf
