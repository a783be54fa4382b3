// Sizes rounded up.
#pragma once
#include <cstdint>

namespace sf {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t align64(int64_t bytes) { return divide_up(bytes, 64) * 64; }

}  // namespace sf
