// What this processor has and this operating system allows. architectures/<name>/features.cpp finds it out.
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
  kAvxVnni = 64,       // vpdpbusd on 256 bits, encoded as AVX2 is
  kDotProduct = 128,   // ARM: sdot and udot
  kInt8Matrix = 256,   // ARM: smmla, usmmla and usdot
};

uint64_t features();

}  // namespace sf
