// Many query rows: AVX2's words.
#include "../avx2/attention_many_rows.h"
