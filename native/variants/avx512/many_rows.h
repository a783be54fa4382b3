// Many rows in blocks of registers. See defaults/many_rows.h.
#pragma once
#include "kernels/row_blocks.h"

namespace sf {

using many_rows = row_blocks::ManyRows<row_blocks::Blocks>;

}  // namespace sf
