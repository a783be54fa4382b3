// Many rows go through tiles. See defaults/gemm.h.
#pragma once
#include "linear_tiles.h"

namespace sf {

namespace gemm {

using tiles::block_rows, tiles::run, tiles::scratch_bytes, tiles::applies;
inline int64_t row_prepared(const Problem&) { return 0; }
inline void prepare(const Problem&, int64_t, int32_t*) {}

}  // namespace gemm

}  // namespace sf
