// Many rows in blocks of registers, as with VNNI.
#include "../avx512/many_rows.h"
