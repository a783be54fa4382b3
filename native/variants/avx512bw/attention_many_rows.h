// Many query rows: as on AVX2.
#include "../avx2/attention_many_rows.h"
