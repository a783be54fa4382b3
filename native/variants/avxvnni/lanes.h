// The float lanes are AVX2's.
#include "../avx2/lanes.h"
