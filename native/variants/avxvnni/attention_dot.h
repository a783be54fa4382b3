// A few query rows: AVX2's way, which is exact on every machine that has AVX-VNNI.
#include "../avx2/attention_dot.h"
