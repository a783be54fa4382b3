// The lanes are those of AVX-512 with VNNI.
#include "../avx512/lanes.h"
