// How a thread spins while it waits for another, on a processor that nothing is known of.
#pragma once
#include <thread>

namespace sf {

inline void relax() { std::this_thread::yield(); }
inline constexpr int kSpins = 2000;

}  // namespace sf
