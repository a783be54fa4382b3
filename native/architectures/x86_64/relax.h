// How a thread spins while it waits for another.
#pragma once
#include <immintrin.h>

namespace sf {

inline void relax() { _mm_pause(); }
// About 50 microseconds: longer than the gap between two operations of a step, shorter than anyone would notice.
inline constexpr int kSpins = 2000;

}  // namespace sf
