// Now and then a delay between two steps of the pool: what a busy machine does in a day happens in a second.
#pragma once
#include <chrono>
#include <cstdint>
#include <thread>

namespace sf {

inline void delay() {
  thread_local uint32_t state = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(&state));
  state = state * 1664525u + 1013904223u;
  if (state >> 28 == 0) std::this_thread::sleep_for(std::chrono::microseconds(state >> 22 & 63));
}

}  // namespace sf

#define SF_DELAY() delay()
