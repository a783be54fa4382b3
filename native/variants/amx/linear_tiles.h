// The integer matmul on AMX tiles.
//
// A band of rows (its limbs in tiles 4 and 5) meets a panel of 32 outputs (tiles 6 and 7) in four sums of 16x16, or six:
//   two-limb rows, one limb of weight:   0, 1 = high times halves 0, 1;  2, 3 = low times halves 0, 1
//   two-limb rows, two limbs of weight:  0, 1 = high high;   2, 3 = high low + low high;   4, 5 = low low (rows in 6, weights in 7)
//   one-limb rows, one limb of weight:   0, 1 = rows 0-15;               2, 3 = rows 16-31
//   one-limb rows, two limbs of weight:  0, 1 = times high;              2, 3 = times low
// Up to 8 rows of two limbs ride in one tile, the limbs as rows of their own: one product per weight tile.
//
// What keeps the tile unit busy (measured; docs/design/integer-matmul.md):
// - A panel's chunk of depth (32 KB of int8 weights) stays in L1 while bands of rows stream past it from L2 by loads that
//   do not displace it (TILELOADDT1). Deeper matrices take several chunks, with the sums waiting in scratch between them.
// - Vector work rides along: while a band is multiplied, the band before it is finished row by row, and the next panel's
//   codes are asked for line by line.
#pragma once
#include <optional>

#include "kernels/codes.h"
#include "tiles.h"

namespace sf::tiles {

inline constexpr int64_t kTileBytes = 1024;
inline constexpr int64_t kChunkBytes = 32 << 10;  // of expanded weights of one panel
inline constexpr int64_t kBlockRows = 192;        // rows that share one pass over a task's weights
inline constexpr int64_t kRowsBytes = 1 << 20;    // of a block of rows that stays in L2

inline bool plain(const Problem& p) { return p.w->bits == 8 && p.w->limbs == 1; }
// Few rows are quicker on vectors, more so where the weights must be expanded into memory for the tiles, and most where
// vectors need not expand them.
inline bool worth(const Problem& p) { return p.rows > (plain(p) ? 2 : by_codes(p) ? 8 : 4); }
inline bool mixed(const Problem& p) { return p.x.limbs == 2 && p.rows <= 8; }

// Rows of the next band, with `left` to go: two full tiles where the second is not the low limb's, else one tile.
inline int64_t band_rows(const Problem& p, int64_t left) {
  const bool pairs = p.x.limbs == 1 && p.w->limbs == 1;
  return pairs && left >= 32 ? 32 : std::min<int64_t>(left, 16);
}
inline int64_t block_rows(const Problem& p) { return std::min<int64_t>(p.rows, kBlockRows); }

// Tiles of one group of one-limb activations.
inline int64_t group_tiles(const Problem& p) { return p.x.group ? p.x.group / kTile : p.w->num_tiles(); }
// Tiles of depth in a chunk: whole groups of one-limb activations.
inline int64_t chunk_tiles(const Problem& p) {
  const int64_t most = kChunkBytes / (2 * kTileBytes * p.w->limbs);
  if (p.x.limbs == 2) return most;
  return std::max(most / group_tiles(p), int64_t(1)) * group_tiles(p);
}

// Tiles of depth that a panel goes through before the next panel's turn: as much of a block of rows as L2 holds.
inline int64_t stretch_tiles(const Problem& p) {
  const int64_t columns = kRowsBytes / (block_rows(p) * p.x.limbs);
  return std::max(columns / kTile / chunk_tiles(p), int64_t(1)) * chunk_tiles(p);
}

// Scratch: the expanded planes of one panel's chunk, then the waiting sums (two limbs) or partial sums (one limb) of a block
// of rows for each panel of the task.
inline int64_t planes_bytes(const Problem& p) { return plain(p) ? 0 : chunk_tiles(p) * 2 * kTileBytes * p.w->limbs; }
inline int64_t scratch_bytes(const Problem& p, int64_t task_panels) {
  const bool waits = p.x.limbs == 1 || p.w->num_tiles() > chunk_tiles(p);
  const int64_t each = p.x.limbs == 1 ? sizeof(Partial) : p.w->limbs == 1 ? sizeof(SumsOf<2, 1>) : sizeof(SumsOf<2, 2>);
  return planes_bytes(p) + (waits ? task_panels * block_rows(p) * each : 0) + 64;
}

// ---- sums between tiles and memory: a band's Sums lie one after the other, [row][k0, k1, k2][32] ----

template <int Count>
inline void load_sums(const Sums<Count>* s) {
  _tile_loadd(0, s->k[0], sizeof(*s));
  _tile_loadd(1, s->k[0] + kHalf, sizeof(*s));
  _tile_loadd(2, s->k[1], sizeof(*s));
  _tile_loadd(3, s->k[1] + kHalf, sizeof(*s));
  if constexpr (Count == 3) {
    _tile_loadd(4, s->k[2], sizeof(*s));
    _tile_loadd(5, s->k[2] + kHalf, sizeof(*s));
  }
}

template <bool RowPairs, int Count>
inline void store_sums(Sums<Count>* s) {
  _tile_stored(0, s->k[0], sizeof(*s));
  _tile_stored(1, s->k[0] + kHalf, sizeof(*s));
  int32_t* second = RowPairs ? (s + 16)->k[0] : s->k[1];
  _tile_stored(2, second, sizeof(*s));
  _tile_stored(3, second + kHalf, sizeof(*s));
  if constexpr (Count == 3) {
    _tile_stored(4, s->k[2], sizeof(*s));
    _tile_stored(5, s->k[2] + kHalf, sizeof(*s));
  }
}

template <int Count>
inline void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if constexpr (Count == 3) {
    _tile_zero(4);
    _tile_zero(5);
  }
}

// Sums 2 and 3 get two products each, kept four apart, since a product's result is ready after about 52 cycles.
inline void multiply_two_by_two(const int8_t* high, const int8_t* low, int64_t stride, const uint8_t* w) {
  _tile_stream_loadd(6, high, stride);
  _tile_loadd(7, w + 2 * kTileBytes, kLine);
  _tile_dpbssd(2, 6, 7);
  _tile_loadd(7, w + 3 * kTileBytes, kLine);
  _tile_dpbssd(3, 6, 7);
  _tile_loadd(7, w + kTileBytes, kLine);
  _tile_dpbssd(1, 6, 7);
  _tile_loadd(7, w, kLine);
  _tile_dpbssd(0, 6, 7);
  _tile_stream_loadd(6, low, stride);
  _tile_dpbssd(2, 6, 7);
  _tile_loadd(7, w + kTileBytes, kLine);
  _tile_dpbssd(3, 6, 7);
  _tile_loadd(7, w + 3 * kTileBytes, kLine);
  _tile_dpbssd(5, 6, 7);
  _tile_loadd(7, w + 2 * kTileBytes, kLine);
  _tile_dpbssd(4, 6, 7);
}

// a and b: the first and the second tile of rows; w: planes [tile][limb][half]. between(t) is vector work for the shadow of
// the tile products.
template <int XLimbs, int WLimbs, class Between>
inline void multiply(const int8_t* a, const int8_t* b, int64_t stride, const uint8_t* w, int64_t tiles, const Between& between) {
  for (int64_t t = 0; t < tiles; ++t, a += kTile, b += kTile, w += 2 * WLimbs * kTileBytes) {
    if constexpr (XLimbs == 2 && WLimbs == 2) {
      multiply_two_by_two(a, b, stride, w);
      between(t);
      continue;
    }
    _tile_stream_loadd(4, a, stride);
    _tile_loadd(6, w, kLine);
    _tile_dpbssd(0, 4, 6);
    if constexpr (WLimbs == 1) {
      _tile_loadd(7, w + kTileBytes, kLine);
      _tile_dpbssd(1, 4, 7);
      _tile_stream_loadd(5, b, stride);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    } else {
      _tile_loadd(7, w + kTileBytes, kLine);
      _tile_dpbssd(1, 4, 7);
      _tile_loadd(6, w + 2 * kTileBytes, kLine);
      _tile_dpbssd(2, 4, 6);
      _tile_loadd(7, w + 3 * kTileBytes, kLine);
      _tile_dpbssd(3, 4, 7);
    }
    between(t);
  }
}

// ---- one panel's chunk of depth ----

inline const uint8_t* codes_of(const Problem& p, int64_t panel, int64_t tile) {
  return p.w->panel(panel) + p.w->codes + tile * p.w->tile_bytes();
}

inline const uint8_t* expand_chunk(const Problem& p, int64_t panel, int64_t first, int64_t tiles, uint8_t* planes) {
  if (plain(p)) return codes_of(p, panel, first);
  with_source(*p.w, [&](const auto& source) { write_planes(source(panel), first * kTileLines, (first + tiles) * kTileLines, planes); });
  return planes;
}

// Asks for some bytes a few lines at a time.
struct Prefetcher {
  const uint8_t* at = nullptr;
  const uint8_t* end = nullptr;
  int64_t lines_per_step = 0;

  void step() {
    for (int64_t i = 0; i < lines_per_step && at < end; ++i, at += kLine) __builtin_prefetch(at, 0, 2);
  }
};

struct Chunk {
  int64_t panel, first, tiles;
  const uint8_t* planes;
  bool opens, closes;  // the first, the last of the depth
};

// ---- two-limb rows, more than 8 ----

// A band whose sums are complete, to be finished in the shadow of the next one's products.
template <int WLimbs>
struct Finisher {
  SumsOf<2, WLimbs> sums[2][16];
  int current = 0;
  std::optional<PanelEnd> end;
  int64_t row = 0, rows = 0, done = 0;

  SumsOf<2, WLimbs>* fresh() { return sums[current ^= 1]; }
  void start(const Problem& p, int64_t panel, int64_t new_row, int64_t new_rows) {
    end.emplace(p, panel);
    row = new_row, rows = new_rows, done = 0;
  }
  void finish_until(int64_t count) {
    for (; done < std::min(count, rows); ++done) finish_two_limbs<WLimbs>(*end, row + done, sums[current][done]);
  }
  void finish() { finish_until(rows); }
};

template <int WLimbs>
void two_limb_band(const Problem& p, int64_t row, int64_t rows, const Chunk& c, SumsOf<2, WLimbs>* waiting, Finisher<WLimbs>& finisher,
                   Prefetcher& ahead) {
  const int8_t* a = p.row(row) + c.first * kTile;
  c.opens ? clear_sums<WLimbs + 1>() : load_sums(waiting);
  const int64_t per_step = (finisher.rows + c.tiles - 1) / c.tiles;
  multiply<2, WLimbs>(a, a + p.x.stride, 2 * p.x.stride, c.planes, c.tiles, [&](int64_t t) {
    finisher.finish_until((t + 1) * per_step);
    ahead.step();
  });
  if (!c.closes) return store_sums<false>(waiting);
  finisher.finish();
  store_sums<false>(finisher.fresh());
  finisher.start(p, c.panel, row, rows);
}

// ---- one-limb rows: a group's sums leave the tiles before the next group starts ----

// A group's sums on their way into the partial sums, in the shadow of the next group's products.
template <int WLimbs>
struct Gatherer {
  Sums<2> sums[2][32];
  int current = 0;
  const float* scales = nullptr;  // of the group, one every `groups`
  int64_t groups = 0, rows = 0, done = 0;
  Partial* partial = nullptr;

  Sums<2>* fresh() { return sums[current ^= 1]; }
  void gather_until(int64_t count) {
    for (; done < std::min(count, rows); ++done) add_group<WLimbs>(sums[current][done], scales[done * groups], partial[done]);
  }
  void gather() { gather_until(rows); }
};

template <int WLimbs>
void one_limb_band(const Problem& p, int64_t row, int64_t rows, const Chunk& c, Partial* partial, Prefetcher& ahead) {
  const int64_t groups = p.groups(), per_group = group_tiles(p), last = c.first + c.tiles;
  // A band of one tile reads it twice: the second sums are dropped.
  const int8_t* a = p.row(row);
  const int8_t* b = rows == 32 ? p.row(row + 16) : a;
  if (c.opens) std::memset(static_cast<void*>(partial), 0, rows * sizeof(Partial));
  Gatherer<WLimbs> gatherer;
  gatherer.groups = groups;
  gatherer.partial = partial;
  for (int64_t tile = c.first; tile < last; tile += per_group) {
    const int64_t count = std::min(per_group, last - tile), per_step = (gatherer.rows + count - 1) / count;
    clear_sums<2>();
    const uint8_t* w = c.planes + (tile - c.first) * 2 * WLimbs * kTileBytes;
    multiply<1, WLimbs>(a + tile * kTile, b + tile * kTile, p.x.stride, w, count, [&](int64_t t) {
      gatherer.gather_until((t + 1) * per_step);
      ahead.step();
    });
    gatherer.gather();
    store_sums<WLimbs == 1>(gatherer.fresh());
    gatherer.scales = p.x.scales + row * groups + tile / per_group;
    gatherer.rows = rows, gatherer.done = 0;
  }
  gatherer.gather();
  if (!c.closes) return;
  const PanelEnd end(p, c.panel);
  for (int64_t r = 0; r < rows; ++r) finish_one_limb(end, row + r, partial[r]);
}

// ---- a task: some panels, a block of rows ----

template <int XLimbs, int WLimbs>
struct Task {
  using Waiting = std::conditional_t<XLimbs == 2, SumsOf<2, WLimbs>, Partial>;
  static constexpr int kFirstWeight = XLimbs == 2 && WLimbs == 2 ? 7 : 6;
  const Problem& p;
  int64_t first_panel, last_panel;
  uint8_t* planes;
  Waiting* waiting;  // [panel][row of the block]
  Finisher<WLimbs> finisher;
  int configured = 0;

  Task(const Problem& problem, int64_t first, int64_t last, uint8_t* scratch)
      : p(problem), first_panel(first), last_panel(last), planes(scratch),
        waiting(reinterpret_cast<Waiting*>(scratch + planes_bytes(problem))) {}

  void run(int64_t start, int64_t end) {
    const int64_t tiles = p.w->num_tiles(), stretch = stretch_tiles(p);
    for (int64_t at = 0; at < tiles; at += stretch)
      for (int64_t panel = first_panel; panel < last_panel; ++panel) run_stretch(panel, at, std::min(at + stretch, tiles), start, end);
    finisher.finish();
  }

  void run_stretch(int64_t panel, int64_t first, int64_t last, int64_t start, int64_t end) {
    const int64_t step = chunk_tiles(p);
    for (int64_t at = first; at < last; at += step) {
      const int64_t count = std::min(step, last - at);
      const Chunk c{panel, at, count, expand_chunk(p, panel, at, count, planes), at == 0, at + count == p.w->num_tiles()};
      run_chunk(c, start, end);
    }
  }

  void run_chunk(const Chunk& c, int64_t start, int64_t end) {
    Prefetcher ahead = next_codes(c, (end - start + 15) / 16 * c.tiles);
    Waiting* block = waiting + (c.panel - first_panel) * block_rows(p);
    for (int64_t row = start, rows; row < end; row += rows) {
      rows = band_rows(p, end - row);
      const int tile_rows = static_cast<int>(std::min<int64_t>(rows, 16));
      if (tile_rows != configured) configure(configured = tile_rows, kFirstWeight);
      if constexpr (XLimbs == 2) two_limb_band<WLimbs>(p, row, rows, c, block + (row - start), finisher, ahead);
      else one_limb_band<WLimbs>(p, row, rows, c, block + (row - start), ahead);
    }
  }

  // The codes that come after this chunk: further down the panel, or the same stretch of the next one.
  Prefetcher next_codes(const Chunk& c, int64_t steps) const {
    const int64_t stretch = stretch_tiles(p), tiles = p.w->num_tiles();
    int64_t panel = c.panel, tile = c.first + c.tiles;
    if (tile % stretch == 0 || tile == tiles) panel += 1, tile = c.first / stretch * stretch;
    if (panel == last_panel) panel = first_panel, tile += stretch;
    if (tile >= tiles) return {};
    const uint8_t* at = codes_of(p, panel, tile);
    const int64_t bytes = std::min(c.tiles, tiles - tile) * p.w->tile_bytes();
    return {at, at + bytes, (bytes / kLine + steps - 1) / steps};
  }
};

// ---- two-limb rows, up to 8: limbs are rows of one tile ----

// k0, k1, k2 from (high, low) times the first and times the second limb of the weights.
inline Sums<3> join(const Sums<2>& first, const Sums<2>& second) {
  Sums<3> s;
  for (int i = 0; i < kPanel; ++i) {
    s.k[0][i] = first.k[0][i];
    s.k[1][i] = first.k[1][i] + second.k[0][i];
    s.k[2][i] = second.k[1][i];
  }
  return s;
}

template <int WLimbs>
inline void multiply_mixed(const int8_t* a, int64_t stride, const uint8_t* w, int64_t tiles, bool from_memory) {
  for (int64_t t = 0; t < tiles; ++t, a += kTile, w += 2 * WLimbs * kTileBytes) {
    if (from_memory)
      for (int64_t line = 0; line < 2 * WLimbs * kTileBytes; line += kLine) prefetch(w + 2 * kAhead + line);
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

// Sums 0 and 1 hold (high, low) times the first limb in successive rows, which is just k0 and k1 of a row with one limb
// of weight; 2 and 3 hold the same times the second limb.
template <int WLimbs>
void mixed_panel(const Problem& p, int64_t panel, uint8_t* planes) {
  Sums<2> first[8], second[8];
  clear_sums<2>();
  const int64_t tiles = p.w->num_tiles(), step = chunk_tiles(p);
  for (int64_t at = 0; at < tiles; at += step) {
    const int64_t count = std::min(step, tiles - at);
    multiply_mixed<WLimbs>(p.row(0) + at * kTile, p.x.stride, expand_chunk(p, panel, at, count, planes), count, plain(p));
  }
  constexpr int64_t kRowBytes = sizeof(Sums<2>) / 2;
  _tile_stored(0, first->k[0], kRowBytes);
  _tile_stored(1, first->k[0] + kHalf, kRowBytes);
  if constexpr (WLimbs == 2) {
    _tile_stored(2, second->k[0], kRowBytes);
    _tile_stored(3, second->k[0] + kHalf, kRowBytes);
  }
  const PanelEnd end(p, panel);
  for (int64_t r = 0; r < p.rows; ++r) {
    if constexpr (WLimbs == 2) finish_two_limbs<2>(end, r, join(first[r], second[r]));
    else finish_two_limbs<1>(end, r, first[r]);
  }
}

template <int WLimbs>
void run_limbs(const Problem& p, const Share& share, uint8_t* scratch) {
  if (mixed(p)) {
    configure(static_cast<int>(2 * p.rows));
    for (int64_t panel = share.first_panel; panel < share.last_panel; ++panel) mixed_panel<WLimbs>(p, panel, scratch);
  } else if (p.x.limbs == 2) {
    Task<2, WLimbs>(p, share.first_panel, share.last_panel, scratch).run(share.first_row, share.last_row);
  } else {
    Task<1, WLimbs>(p, share.first_panel, share.last_panel, scratch).run(share.first_row, share.last_row);
  }
}

inline void run(const Problem& p, const Share& share, uint8_t* scratch) {
  p.w->limbs == 1 ? run_limbs<1>(p, share, scratch) : run_limbs<2>(p, share, scratch);
  release();
}

}  // namespace sf::tiles
