// Many rows by products of limbs. See defaults/gemm.h.
#pragma once
#include "slices.h"

namespace sf {

using gemm = gemm_blocks::Gemm<slices::Forms>;

}  // namespace sf
