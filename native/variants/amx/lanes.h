// A machine with AMX has AVX-512: the float lanes are the same.
#include "../avx512/lanes.h"
