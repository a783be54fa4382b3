// The float lanes are NEON's.
#include "../neon/lanes.h"
