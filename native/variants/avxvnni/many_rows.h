// Many rows in blocks of registers, as on AVX2.
#include "../avx2/many_rows.h"
