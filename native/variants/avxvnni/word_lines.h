// Words are AVX2's.
#include "../avx2/word_lines.h"
