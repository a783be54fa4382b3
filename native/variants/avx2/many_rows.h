// Many rows in blocks of registers. See defaults/many_rows.h.
#pragma once
#include "kernels/row_blocks.h"

namespace sf {

namespace many_rows = row_blocks;

}  // namespace sf
