// Many rows by products of limbs, as on NEON, with smmla.
#include "../neon/many_rows.h"
