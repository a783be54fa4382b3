// The integer matmul on AMX tiles.
//
// A band of rows (its limbs in tiles 4 and 5) meets a panel of 32 outputs (tiles 6 and 7) in four sums of 16x16:
//   two-limb rows, one limb of weight:   0, 1 = high times halves 0, 1;  2, 3 = low times halves 0, 1
//   two-limb rows, two limbs of weight:  0, 1 = high high;               2, 3 = high low + low high
//   one-limb rows, one limb of weight:   0, 1 = rows 0-15;               2, 3 = rows 16-31
//   one-limb rows, two limbs of weight:  0, 1 = times high;              2, 3 = times low
// Up to 8 rows of two limbs ride in one tile, the limbs as rows of their own: one product per weight tile.
//
// Depth is cut into chunks so that a band's chunk stays in L1 while the task's weights stream from L2; sums wait in
// scratch between chunks.
#pragma once
#include "kernels/linear.h"
#include "tiles.h"

namespace sf::tiles {

inline constexpr int64_t kChunkTiles = 16;   // 1024 columns
inline constexpr int64_t kBlockRows = 512;   // rows that share one pass over a task's weights
inline constexpr int64_t kTaskPanels = 8;
inline constexpr int64_t kTileBytes = 1024;

inline bool plain(const Problem& p) { return p.w->bits == 8 && p.w->limbs == 1; }
inline bool worth(const Problem& p) { return p.rows > kRowBlock; }
inline bool mixed(const Problem& p) { return p.x.limbs == 2 && p.rows <= 8; }

// Rows of the next band, with `left` to go: two full tiles where the second is not the low limb's, else one tile.
inline int64_t band_rows(const Problem& p, int64_t left) {
  const bool pairs = p.x.limbs == 1 && p.w->limbs == 1;
  return pairs && left >= 32 ? 32 : std::min<int64_t>(left, 16);
}

inline int64_t block_rows(const Problem& p) { return p.rows < kBlockRows ? (p.rows + 31) / 32 * 32 : kBlockRows; }

// Tiles of depth in a chunk: whole groups of one-limb activations.
inline int64_t chunk_tiles(const Problem& p) {
  if (p.x.limbs == 2) return kChunkTiles;
  const int64_t group = p.x.group ? p.x.group / kTile : p.w->num_tiles();
  return group >= kChunkTiles ? group : kChunkTiles / group * group;
}

// Scratch: expanded planes of a task's chunk, then the waiting sums (or partial sums) [panel][row].
inline int64_t panel_planes_bytes(const Problem& p) { return chunk_tiles(p) * 2 * kTileBytes * p.w->limbs; }
inline int64_t planes_bytes(const Problem& p) { return plain(p) ? 0 : kTaskPanels * panel_planes_bytes(p); }
inline int64_t scratch_bytes(const Problem& p) {
  return planes_bytes(p) + kTaskPanels * block_rows(p) * static_cast<int64_t>(sizeof(Sums) + sizeof(Partial));
}

// The sums of a band lie as Sums structs one after the other: [row][k0, k1][32].
inline constexpr int64_t kSumsBytes = sizeof(Sums);

template <bool OneByOne>
inline void load_sums(const Sums* s) {
  _tile_loadd(0, s->k[0], kSumsBytes);
  _tile_loadd(1, s->k[0] + kHalf, kSumsBytes);
  const Sums* second = OneByOne ? s + 16 : s;
  _tile_loadd(2, second->k[OneByOne ? 0 : 1], kSumsBytes);
  _tile_loadd(3, second->k[OneByOne ? 0 : 1] + kHalf, kSumsBytes);
}

template <bool OneByOne>
inline void store_sums(Sums* s) {
  _tile_stored(0, s->k[0], kSumsBytes);
  _tile_stored(1, s->k[0] + kHalf, kSumsBytes);
  Sums* second = OneByOne ? s + 16 : s;
  _tile_stored(2, second->k[OneByOne ? 0 : 1], kSumsBytes);
  _tile_stored(3, second->k[OneByOne ? 0 : 1] + kHalf, kSumsBytes);
}

inline void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// a and b: the first and the second tile of rows; w: planes [tile][limb][half].
template <int XLimbs, int WLimbs>
inline void multiply(const int8_t* a, const int8_t* b, int64_t stride, const uint8_t* w, int64_t tiles) {
  for (int64_t t = 0; t < tiles; ++t, a += kTile, b += kTile, w += 2 * WLimbs * kTileBytes) {
    _tile_loadd(4, a, stride);
    _tile_loadd(6, w, kLine);
    _tile_dpbssd(0, 4, 6);
    if constexpr (WLimbs == 1) {
      _tile_loadd(7, w + kTileBytes, kLine);
      _tile_dpbssd(1, 4, 7);
      _tile_loadd(5, b, stride);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    } else if constexpr (XLimbs == 2) {
      // Sums 2 and 3 get two products each: kept three apart, since a product's result is ready after about 52 cycles.
      _tile_loadd(5, b, stride);
      _tile_dpbssd(2, 5, 6);
      _tile_loadd(7, w + kTileBytes, kLine);
      _tile_dpbssd(3, 5, 7);
      _tile_dpbssd(1, 4, 7);
      _tile_loadd(6, w + 2 * kTileBytes, kLine);
      _tile_dpbssd(2, 4, 6);
      _tile_loadd(7, w + 3 * kTileBytes, kLine);
      _tile_dpbssd(3, 4, 7);
    } else {
      _tile_loadd(7, w + kTileBytes, kLine);
      _tile_dpbssd(1, 4, 7);
      _tile_loadd(6, w + 2 * kTileBytes, kLine);
      _tile_dpbssd(2, 4, 6);
      _tile_loadd(7, w + 3 * kTileBytes, kLine);
      _tile_dpbssd(3, 4, 7);
    }
  }
}

// One chunk of depth of one task's weights, as planes.
struct Chunk {
  int64_t first, tiles;  // in tiles of the whole depth
  const uint8_t* planes[kTaskPanels];
};

inline Chunk chunk_of(const Problem& p, int64_t first_panel, int64_t last_panel, int64_t first, int64_t tiles, uint8_t* scratch) {
  Chunk c{first, tiles, {}};
  const PackedHeader& h = *p.w;
  for (int64_t panel = first_panel; panel < last_panel; ++panel) {
    if (plain(p)) {
      c.planes[panel - first_panel] = h.panel(panel) + h.codes + first * 2 * kTileBytes;
      continue;
    }
    uint8_t* planes = scratch + (panel - first_panel) * panel_planes_bytes(p);
    const auto write = [&](const auto& source) { write_planes(source, first * kTileLines, (first + tiles) * kTileLines, planes); };
    if (h.bits == 8) write(Wide8Source(h, panel));
    else if (h.limbs == 1) write(Narrow4Source(h, panel));
    else write(Wide4Source(h, panel));
    c.planes[panel - first_panel] = planes;
  }
  return c;
}

// ---- two-limb rows, more than 8 ----

template <int WLimbs>
void two_limb_band(const Problem& p, int64_t row, int64_t rows, const Chunk& c, int64_t first_panel, int64_t last_panel, Sums* waiting, int64_t waiting_rows) {
  const int8_t* a = p.row(row) + c.first * kTile;
  const bool opens = c.first == 0, closes = c.first + c.tiles == p.w->num_tiles();
  Sums done[16];
  for (int64_t panel = first_panel; panel < last_panel; ++panel) {
    Sums* sums = waiting + (panel - first_panel) * waiting_rows;
    opens ? clear_sums() : load_sums<false>(sums);
    multiply<2, WLimbs>(a, a + p.x.stride, 2 * p.x.stride, c.planes[panel - first_panel], c.tiles);
    store_sums<false>(closes ? done : sums);
    if (closes)
      for (int64_t r = 0; r < rows; ++r) finish_two_limbs<WLimbs>(p, row + r, panel, done[r]);
  }
}

// ---- two-limb rows, up to 8: limbs are rows of one tile ----

template <int WLimbs>
inline void multiply_mixed(const int8_t* a, int64_t stride, const uint8_t* w, int64_t tiles) {
  for (int64_t t = 0; t < tiles; ++t, a += kTile, w += 2 * WLimbs * kTileBytes) {
    for (int64_t line = 0; line < 2 * WLimbs * kTileBytes; line += kLine) prefetch(w + kAhead * WLimbs + line);
    _tile_loadd(4, a, stride);
    _tile_loadd(6, w, kLine);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, w + kTileBytes, kLine);
    _tile_dpbssd(1, 4, 7);
    if constexpr (WLimbs == 2) {
      _tile_loadd(6, w + 2 * kTileBytes, kLine);
      _tile_dpbssd(2, 4, 6);
      _tile_loadd(7, w + 3 * kTileBytes, kLine);
      _tile_dpbssd(3, 4, 7);
    }
  }
}

// Sums 0 and 1 hold (high, low) times the first limb in successive rows, which is just k0 and k1 of a row; 2 and 3 hold
// the same times the second limb, of which only high counts.
template <int WLimbs>
void mixed_panel(const Problem& p, int64_t panel, const uint8_t* planes_start, uint8_t* scratch) {
  Sums first[8], second[8];
  clear_sums();
  const int64_t tiles = p.w->num_tiles();
  for (int64_t at = 0; at < tiles; at += kChunkTiles) {
    const int64_t count = std::min(kChunkTiles, tiles - at);
    const uint8_t* planes = planes_start ? planes_start + at * 2 * kTileBytes : chunk_of(p, panel, panel + 1, at, count, scratch).planes[0];
    multiply_mixed<WLimbs>(p.row(0) + at * kTile, p.x.stride, planes, count);
  }
  constexpr int64_t kRowBytes = kSumsBytes / 2;
  _tile_stored(0, first->k[0], kRowBytes);
  _tile_stored(1, first->k[0] + kHalf, kRowBytes);
  if constexpr (WLimbs == 2) {
    _tile_stored(2, second->k[0], kRowBytes);
    _tile_stored(3, second->k[0] + kHalf, kRowBytes);
  }
  for (int64_t r = 0; r < p.rows; ++r) {
    if constexpr (WLimbs == 2)
      for (int i = 0; i < kPanel; ++i) first[r].k[1][i] += second[r].k[0][i];
    finish_two_limbs<WLimbs>(p, r, panel, first[r]);
  }
}

// ---- one-limb rows: a group's sums leave the tiles before the next group starts ----

template <int WLimbs>
void one_limb_band(const Problem& p, int64_t row, int64_t rows, const Chunk& c, int64_t first_panel, int64_t last_panel, Partial* waiting, int64_t waiting_rows) {
  constexpr bool kOneByOne = WLimbs == 1;
  const int64_t groups = p.groups(), last = c.first + c.tiles;
  const bool opens = c.first == 0, closes = last == p.w->num_tiles();
  // A band of one tile reads it twice: the second sums are dropped.
  const int8_t* a = p.row(row);
  const int8_t* b = rows == 32 ? p.row(row + 16) : a;
  Sums sums[32];
  for (int64_t panel = first_panel; panel < last_panel; ++panel) {
    Partial* partial = waiting + (panel - first_panel) * waiting_rows;
    if (opens) std::memset(partial, 0, rows * sizeof(Partial));
    const int64_t tiles_per_group = p.x.group ? p.x.group / kTile : p.w->num_tiles();
    for (int64_t tile = c.first; tile < last; tile += tiles_per_group) {
      const int64_t count = std::min(tiles_per_group, last - tile), g = tile / tiles_per_group;
      clear_sums();
      multiply<1, WLimbs>(a + tile * kTile, b + tile * kTile, p.x.stride, c.planes[panel - first_panel] + (tile - c.first) * 2 * WLimbs * kTileBytes, count);
      store_sums<kOneByOne>(sums);
      for (int64_t r = 0; r < rows; ++r) add_group<WLimbs>(sums[r], p.x.scales[(row + r) * groups + g], partial[r]);
    }
    if (closes)
      for (int64_t r = 0; r < rows; ++r) finish_one_limb(p, row + r, panel, partial[r]);
  }
}

// ---- a task: some panels, all rows ----

template <int XLimbs, int WLimbs>
void run_bands(const Problem& p, int64_t first_panel, int64_t last_panel, uint8_t* scratch) {
  const int64_t tiles = p.w->num_tiles(), step = chunk_tiles(p), block = block_rows(p);
  auto* waiting = scratch + planes_bytes(p);
  for (int64_t start = 0; start < p.rows; start += block)
    for (int64_t at = 0; at < tiles; at += step) {
      const Chunk c = chunk_of(p, first_panel, last_panel, at, std::min(step, tiles - at), scratch);
      int configured = 0;
      const int64_t end = std::min(start + block, p.rows);
      for (int64_t row = start, rows; row < end; row += rows) {
        rows = band_rows(p, end - row);
        const int tile_rows = static_cast<int>(std::min<int64_t>(rows, 16));
        if (tile_rows != configured) configure(configured = tile_rows);
        if constexpr (XLimbs == 2)
          two_limb_band<WLimbs>(p, row, rows, c, first_panel, last_panel, reinterpret_cast<Sums*>(waiting) + (row - start), block);
        else
          one_limb_band<WLimbs>(p, row, rows, c, first_panel, last_panel, reinterpret_cast<Partial*>(waiting) + (row - start), block);
      }
    }
}

template <int WLimbs>
void run_mixed(const Problem& p, int64_t first_panel, int64_t last_panel, uint8_t* scratch) {
  configure(static_cast<int>(2 * p.rows));
  for (int64_t panel = first_panel; panel < last_panel; ++panel)
    mixed_panel<WLimbs>(p, panel, plain(p) ? p.w->panel(panel) + p.w->codes : nullptr, scratch);
}

inline void run(const Problem& p, int64_t first_panel, int64_t last_panel, uint8_t* scratch) {
  const bool two = p.w->limbs == 2;
  if (mixed(p)) two ? run_mixed<2>(p, first_panel, last_panel, scratch) : run_mixed<1>(p, first_panel, last_panel, scratch);
  else if (p.x.limbs == 2) two ? run_bands<2, 2>(p, first_panel, last_panel, scratch) : run_bands<2, 1>(p, first_panel, last_panel, scratch);
  else two ? run_bands<1, 2>(p, first_panel, last_panel, scratch) : run_bands<1, 1>(p, first_panel, last_panel, scratch);
  release();
}

}  // namespace sf::tiles
