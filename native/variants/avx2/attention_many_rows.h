// Query rows share keys and values widened to words. See defaults/attention_many_rows.h.
#pragma once
#include "kernels/attention_words.h"

namespace sf::attention {

using ManyRowDots = WordDots;
inline constexpr int64_t kManyRows = 2;  // for one row, widening costs more than it saves

}  // namespace sf::attention
