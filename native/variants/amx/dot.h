// Few rows run on AVX-512's dot products, on AMX machines too.
#include "../avx512/dot.h"
