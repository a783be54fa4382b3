// How a thread spins while it waits for another.
#pragma once

namespace sf {

// `yield` does nothing on today's cores. `isb` empties the pipeline, some tens of cycles, as x86's pause does.
inline void relax() { __asm__ volatile("isb" ::: "memory"); }
// About as long as on x86, by the published latencies: no ARM machine has been timed.
inline constexpr int kSpins = 4000;

}  // namespace sf
