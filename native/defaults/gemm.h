// The integer matmul of many rows, where a variant has one of its own: a header of this name in its folder.
// This is the default: linear.cpp does all of it.
#pragma once
#include "kernels/linear.h"

namespace sf::gemm {

// Is this problem run here?
inline bool applies(const Problem&) { return false; }
// Rows of a task.
inline int64_t block_rows(const Problem& p) { return p.rows; }
// Bytes of scratch that a task of `panels` panels needs.
inline int64_t scratch_bytes(const Problem&, int64_t) { return 0; }
inline void run(const Problem&, const Share&, uint8_t*) {}
// Numbers that are prepared of each row, for all tasks to read; and writes those of one row, `out` being row 0's place.
inline int64_t row_prepared(const Problem&) { return 0; }
inline void prepare(const Problem&, int64_t, int32_t*) {}

}  // namespace sf::gemm
