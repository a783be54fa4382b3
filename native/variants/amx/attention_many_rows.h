// Many query rows go through tiles. See defaults/attention_many_rows.h.
#pragma once
#include "attention_tiles.h"

namespace sf::attention {

using ManyRowDots = TileDots;
inline constexpr int64_t kManyRows = 9;  // with fewer the vector form keeps memory busier

}  // namespace sf::attention
