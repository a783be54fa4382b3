// Many rows by products of limbs. See defaults/many_rows.h.
#pragma once
#include "slices.h"

namespace sf {

using many_rows = row_blocks::ManyRows<slices::Forms>;

}  // namespace sf
