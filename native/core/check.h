// Argument checks at the ABI's door.
#pragma once
#include <cstdint>

#include "core/ops.h"

#define SF_REQUIRE(condition, error) \
  do {                               \
    if (!(condition)) return error;  \
  } while (0)

namespace sf {

inline bool aligned64(const void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; }

// Quantised rows of cols columns, as surefoot.h describes them.
inline Error check_activations(const sf_activations& a, int64_t cols) {
  SF_REQUIRE(a.values && a.scales, kNullPointer);
  SF_REQUIRE(aligned64(a.values), kMisaligned);
  SF_REQUIRE(a.stride % 64 == 0 && a.stride >= cols, kBadShape);
  SF_REQUIRE(a.limbs == 1 || a.limbs == 2, kBadOption);
  SF_REQUIRE(a.group >= 0 && a.group % 64 == 0 && (a.limbs == 1 || a.group == 0), kBadOption);
  return kOk;
}

}  // namespace sf
