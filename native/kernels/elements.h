// Work over a flat array: sixteen elements at a time, split over the threads.
#pragma once
#include "core/context.h"
#include "lanes.h"

namespace sf {

// body(first, n) for every run of n <= 16 elements; n is a constant 16 in all but the last, once inlined.
template <class Body>
void each_run(int64_t start, int64_t end, const Body& body) {
  int64_t i = start;
  for (; i + kLanes <= end; i += kLanes) body(i, kLanes);
  if (i < end) body(i, static_cast<int>(end - i));
}

// The same on all threads. A task is long enough to be worth waking a thread for.
template <class Body>
void run_elements(Context& context, int64_t count, const Body& body) {
  constexpr int64_t task_elements = 8192;
  context.pool.run((count + task_elements - 1) / task_elements, [&](int64_t task, int) {
    const int64_t start = task * task_elements;
    each_run(start, start + task_elements < count ? start + task_elements : count, body);
  });
}

}  // namespace sf
