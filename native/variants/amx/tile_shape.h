// How the integer matmul is cut for tiles: which problems, bands of rows, chunks of depth, scratch.
#pragma once
#include <algorithm>

#include "kernels/gemv_codes.h"
#include "tiles.h"

namespace sf::tiles {

inline constexpr int64_t kChunkBytes = 32 << 10;  // of expanded weights of one panel
inline constexpr int64_t kBlockRows = 192;        // rows that share one pass over a task's weights
inline constexpr int64_t kRowsBytes = 1 << 20;    // of a block of rows that stays in L2

inline bool plain(const Problem& p) { return p.w->bits == 8 && p.w->limbs == 1; }
// So many rows are quicker on vectors, more of them where vectors need not expand the weights.
inline int64_t vector_rows(const Problem& p) {
  if (!by_codes(p)) return 2;
  return p.w->limbs == 1 ? 3 : p.w->bits == 8 ? 4 : 5;
}
inline bool applies(const Problem& p) { return p.rows > vector_rows(p); }
inline bool mixed(const Problem& p) { return p.x.limbs == 2 && p.rows <= 8; }

// Rows of the next band, with `left` to go: two full tiles where the second is not the low limb's, else one tile.
inline int64_t band_rows(const Problem& p, int64_t left) {
  const bool pairs = p.x.limbs == 1 && p.w->limbs == 1;
  return pairs && left >= 32 ? 32 : std::min<int64_t>(left, 16);
}
inline bool one_band(const Problem& p) { return p.x.limbs == 2 && p.rows <= 16; }
// Two limbs by two: half a panel at a time leaves room for the sums of two bands.
inline bool two_bands(const Problem& p) { return p.x.limbs == 2 && p.w->limbs == 2 && p.rows > 16 && p.rows <= 32; }
// Then sums need not leave the tiles between chunks, so that chunks may be small: both buffers of expanded weights must
// stay in L1 while codes and rows stream through it.
inline bool sums_stay(const Problem& p) { return one_band(p) || two_bands(p); }
inline int64_t block_rows(const Problem& p) { return std::min<int64_t>(p.rows, kBlockRows); }

// Tiles of one group of one-limb activations.
inline int64_t group_tiles(const Problem& p) { return p.x.group ? p.x.group / kTile : p.w->num_tiles(); }
// Bytes of expanded weights, a tile deep.
inline int64_t depth_bytes(const Problem& p) { return (two_bands(p) ? 1 : 2) * p.w->limbs * kTileBytes; }
// Tiles of depth in a chunk: whole groups of one-limb activations.
inline int64_t chunk_tiles(const Problem& p) {
  const int64_t bytes = sums_stay(p) && !plain(p) ? kChunkBytes / 4 : kChunkBytes;
  const int64_t most = bytes / depth_bytes(p);
  if (p.x.limbs == 2) return most;
  return std::max(most / group_tiles(p), int64_t(1)) * group_tiles(p);
}

// Tiles of depth that a panel goes through before the next panel's turn: as much of a block of rows as L2 holds.
inline int64_t stretch_tiles(const Problem& p) {
  const int64_t columns = kRowsBytes / (block_rows(p) * p.x.limbs);
  return sums_stay(p) ? p.w->num_tiles() : std::max(columns / kTile / chunk_tiles(p), int64_t(1)) * chunk_tiles(p);
}

// Does a panel go through its whole depth at once? Then the next one's sums may wait where its own did, warm in L2.
inline bool one_stretch(const Problem& p) { return stretch_tiles(p) >= p.w->num_tiles(); }

// Scratch: the expanded planes of two chunks, the one in use and the next, then the waiting sums (two limbs) or partial
// sums (one limb) of a block of rows for each panel under way.
inline int64_t chunk_bytes(const Problem& p) { return chunk_tiles(p) * depth_bytes(p); }
inline int64_t planes_bytes(const Problem& p) { return plain(p) ? 0 : 2 * chunk_bytes(p); }
inline int64_t scratch_bytes(const Problem& p, int64_t task_panels) {
  const bool waits = p.x.limbs == 1 || (p.w->num_tiles() > chunk_tiles(p) && !sums_stay(p));
  const int64_t each = p.x.limbs == 1 ? sizeof(Partial) : p.w->limbs == 1 ? sizeof(SumsOf<2, 1>) : sizeof(SumsOf<2, 2>);
  return planes_bytes(p) + (waits ? (one_stretch(p) ? 1 : task_panels) * block_rows(p) * each : 0) + 64;
}

}  // namespace sf::tiles
