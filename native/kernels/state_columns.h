// Columns of a head's state, a matrix [height][width]. They never meet, so that a task may own any of them: it keeps
// them in the cache while the rows of a chunk pass.
#pragma once
#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/context.h"
#include "core/ops.h"
#include "core/sizes.h"
#include "lanes.h"  // of the variant

namespace sf {

inline constexpr int kMaxRuns = 4;  // Lanes side by side: 64 columns of 128 rows stay in the first-level cache
inline constexpr int64_t kMaxStateHeight = 512;

struct HeadStates {
  float* data;  // [slots][heads][height][width]
  int64_t heads, height, width;
};

// Runs * kLanes columns of one head, from column `first` on.
template <int Runs>
struct StateColumns {
  static constexpr int64_t kWidth = Runs * kLanes, kBytes = kWidth * int64_t(sizeof(float));
  HeadStates states;
  int64_t head, first;
  float* own;  // [height][kWidth]

  float* place(int64_t slot) const {
    return states.data + (slot * states.heads + head) * states.height * states.width + first;
  }
  // A negative slot: zeros.
  void load(int64_t slot) const {
    if (slot < 0) return void(std::memset(own, 0, states.height * kBytes));
    for (int64_t i = 0; i < states.height; ++i) std::memcpy(own + i * kWidth, place(slot) + i * states.width, kBytes);
  }
  void save(int64_t slot) const {
    for (int64_t i = 0; i < states.height; ++i) std::memcpy(place(slot) + i * states.width, own + i * kWidth, kBytes);
  }
};

// row(columns, r) for every row of a chunk, between its loaded state and those that are saved.
template <int Runs, class Row>
void pass_rows(const sf_state_rows& rows, int64_t chunk, const StateColumns<Runs>& columns, const Row& row) {
  columns.load(rows.loads[chunk]);
  for (int64_t r = rows.starts[chunk]; r < rows.starts[chunk + 1]; ++r) {
    row(columns, r);
    if (rows.saves[r] >= 0) columns.save(rows.saves[r]);
  }
}

// The same for every chunk and all columns of every head, on all threads.
template <class Row>
void pass_all(Context& context, const sf_state_rows& rows, const HeadStates& states, const Row& row) {
  const int64_t width = kMaxRuns * kLanes, blocks = divide_up(states.width, width);
  reserve_scratch<float>(context, states.height * width);
  context.pool.run(rows.chunks * states.heads * blocks, [&](int64_t task, int thread) {
    const int64_t chunk = task / blocks / states.heads, head = task / blocks % states.heads;
    const int64_t first = task % blocks * width;
    float* own = context.scratch[thread].get<float>(states.height * width);
    switch (std::min<int64_t>(kMaxRuns, (states.width - first) / kLanes)) {
      case 1:
        return pass_rows(rows, chunk, StateColumns<1>{states, head, first, own}, row);
      case 2:
        return pass_rows(rows, chunk, StateColumns<2>{states, head, first, own}, row);
      case 3:
        return pass_rows(rows, chunk, StateColumns<3>{states, head, first, own}, row);
      default:
        return pass_rows(rows, chunk, StateColumns<4>{states, head, first, own}, row);
    }
  });
}

inline Error check_head_states(const HeadStates& states) {
  SF_REQUIRE(states.data, kNullPointer);
  SF_REQUIRE(states.heads > 0 && states.height > 0 && states.height <= kMaxStateHeight, kBadShape);
  SF_REQUIRE(states.width > 0 && states.width % kLanes == 0, kBadShape);
  return kOk;
}

}  // namespace sf
