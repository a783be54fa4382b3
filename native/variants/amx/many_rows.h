// Many rows go through tiles. See defaults/many_rows.h.
#pragma once
#include "linear_tiles.h"

namespace sf {

namespace many_rows {

using tiles::block_rows, tiles::run, tiles::scratch_bytes, tiles::worth;
inline int64_t row_prepared(const Problem&) { return 0; }
inline void prepare(const Problem&, int64_t, int32_t*) {}

}  // namespace many_rows

}  // namespace sf
