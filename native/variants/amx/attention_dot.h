// A few query rows go through VNNI; attention_tiles.h has the form for many.
#include "../avx512/attention_dot.h"
