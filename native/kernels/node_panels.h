// Which panels of a packed matrix belong to a node: its threads multiply them, and its memory holds them.
#pragma once
#include <utility>

#include "core/pool.h"

namespace sf {

// The first panel, and the one after the last. Depends on nothing but the number of panels and the threads.
inline std::pair<int64_t, int64_t> node_panels(const Pool& pool, size_t node, int64_t num_panels) {
  return {node ? pool.part_end(node - 1, num_panels) : 0, pool.part_end(node, num_panels)};
}

}  // namespace sf
