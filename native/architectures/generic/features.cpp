// No features: the portable variant needs none.
#include "core/features.h"

namespace sf {

uint64_t features() { return 0; }

}  // namespace sf
