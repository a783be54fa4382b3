// Many rows in blocks of registers. See defaults/gemm.h.
#pragma once
#include "kernels/gemm_blocks.h"

namespace sf {

using gemm = gemm_blocks::Gemm<gemm_blocks::Blocks>;

}  // namespace sf
