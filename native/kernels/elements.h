// Work over a flat array or over rows: sixteen elements at a time, split over the threads.
#pragma once
#include <algorithm>

#include "core/context.h"
#include "core/sizes.h"
#include "lanes.h"  // of the variant

namespace sf {

// body(first, n) for every run of n <= 16 elements; n is a constant 16 in all but the last, once inlined.
template <class Body>
[[gnu::always_inline]] inline void each_run(int64_t start, int64_t end, const Body& body) {
  int64_t i = start;
  for (; i + kLanes <= end; i += kLanes) body(i, kLanes);
  if (i < end) body(i, static_cast<int>(end - i));
}

// Long enough to be worth waking a thread for: a microsecond or more.
inline constexpr int64_t kTaskElements = 8192;

// The same on all threads.
template <class Body>
void run_elements(Context& context, int64_t count, const Body& body) {
  context.pool.run(divide_up(count, kTaskElements), [&](int64_t task, int) {
    const int64_t start = task * kTaskElements;
    each_run(start, std::min(start + kTaskElements, count), body);
  });
}

// body(row, thread) for every row of cols elements.
template <class Body>
void run_rows(Context& context, int64_t rows, int64_t cols, const Body& body) {
  const int64_t task_rows = std::max<int64_t>(1, kTaskElements / cols);
  context.pool.run(divide_up(rows, task_rows), [&](int64_t task, int thread) {
    const int64_t start = task * task_rows;
    for (int64_t row = start; row < std::min(start + task_rows, rows); ++row) body(row, thread);
  });
}

}  // namespace sf
