// A process must ask for the tiles' state before it uses a tile. See defaults/permission.h.
#pragma once
#include "tile_permission.h"

namespace sf {

inline bool ask_permission() { return ask_for_tiles(); }

}  // namespace sf
