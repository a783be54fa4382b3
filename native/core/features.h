// What this processor has and this operating system allows.
#pragma once
#include <cstdint>

namespace sf {

// Bits of sf_features(). The Python side gives them names.
enum Feature : uint64_t {
  kAvx2 = 1,    // AVX2, FMA and F16C, with the OS saving 256-bit state
  kAvx512 = 2,  // F, BW, DQ, VL, with the OS saving 512-bit state
  kAvx512Vnni = 4,
  kAmxInt8 = 8,  // with the OS saving tile state
  kAmxBf16 = 16,
  kAmxPermitted = 32,  // this process may use tiles (asking is what grants it)
};

uint64_t features();
// Asks for the tiles' state on behalf of this process. False: refused.
bool ask_for_tiles();

}  // namespace sf
