// The integer matmul on AMX tiles.
//
// A band of rows (its limbs in tiles 4 and 5) meets a panel of 32 outputs (tiles 6 and 7) in four sums of 16x16, or
// six:
//   two-limb rows, one limb of weight:   0, 1 = high times halves 0, 1;  2, 3 = low times halves 0, 1
//   two-limb rows, two limbs of weight:  0, 1 = high high;   2, 3 = high low + low high;   4, 5 = low low
//                                        (rows in 6, weights in 7); 17 to 32 rows go by halves of a panel (two_bands.h)
//   one-limb rows, one limb of weight:   0, 1 = rows 0-15;               2, 3 = rows 16-31
//   one-limb rows, two limbs of weight:  0, 1 = times high;              2, 3 = times low
// Up to 8 rows of two limbs ride in one tile, the limbs as rows of their own: one product per weight tile.
//
// What keeps the tile unit busy (measured; docs/design/integer-matmul.md):
// - A panel's chunk of depth (32 KB of int8 weights) stays in L1 while bands of rows stream past it from L2 by loads
//   that do not displace it (TILELOADDT1). Deeper matrices take several chunks, with the sums waiting in scratch
//   between them.
// - Vector work rides along, a little after every product: the band before is finished, half a row at a time, and the
//   next chunk's codes are expanded, or its weights asked for, line by line. More at a time does not hide: the queue of
//   instructions fills up with it, and the products behind wait.
#pragma once
#include "linear_codes_source.h"
#include "two_bands.h"

namespace sf::tiles {

// ---- two-limb rows, more than 8 ----

// A band whose sums are complete, to be finished in the shadow of the next one's products.
template <int WLimbs>
struct Finisher {
  SumsOf<2, WLimbs> sums[2][16];
  int current = 0;
  std::optional<PanelEnd> end;
  int64_t row = 0, rows = 0, done = 0;  // halves of rows

  SumsOf<2, WLimbs>* fresh() { return sums[current ^= 1]; }
  void start(const Problem& p, int64_t panel, int64_t new_row, int64_t new_rows) {
    end.emplace(p, panel);
    row = new_row, rows = new_rows, done = 0;
  }
  void step() {
    if (done == 2 * rows) return;
    finish_half<WLimbs>(*end, row + done / 2, static_cast<int>(done % 2), sums[current][done / 2]);
    ++done;
  }
  void finish() {
    while (done < 2 * rows) step();
  }
};

template <int WLimbs, class Source>
void two_limb_band(const Problem& p, int64_t row, int64_t rows, const Chunk& c, const uint8_t* planes,
                   SumsOf<2, WLimbs>* waiting, Finisher<WLimbs>& finisher, Supply<Source>& supply) {
  const int8_t* a = p.row(row) + c.first * kTile;
  if (c.opens) clear_sums<WLimbs + 1>();
  else if (!one_band(p)) load_sums(waiting);
  if constexpr (WLimbs == 1) multiply_pairs(a, a + p.x.stride, 2 * p.x.stride, planes, c.tiles, finisher, supply);
  else multiply_two_by_two(a, a + p.x.stride, 2 * p.x.stride, planes, c.tiles, finisher, supply);
  if (!c.closes) {
    if (!one_band(p)) store_sums<false>(waiting);
    return;
  }
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
  int64_t groups = 0, rows = 0, done = 0, each_step = 0;
  Partial* partial = nullptr;

  Sums<2>* fresh() { return sums[current ^= 1]; }
  void step() { gather_until(std::min(done + each_step, rows)); }
  void gather() { gather_until(rows); }
  void gather_until(int64_t count) {
    for (; done < count; ++done) add_group<WLimbs>(sums[current][done], scales[done * groups], partial[done]);
  }
};

template <int WLimbs, class Source>
void one_limb_band(const Problem& p, int64_t row, int64_t rows, const Chunk& c, const uint8_t* planes, Partial* partial,
                   Supply<Source>& supply) {
  const int64_t groups = p.groups(), per_group = group_tiles(p), last = c.first + c.tiles;
  // A band of one tile reads it twice: the second sums are dropped.
  const int8_t* a = p.row(row);
  const int8_t* b = rows == 32 ? p.row(row + 16) : a;
  if (c.opens) std::memset(static_cast<void*>(partial), 0, rows * sizeof(Partial));
  Gatherer<WLimbs> gatherer;
  gatherer.groups = groups;
  gatherer.partial = partial;
  for (int64_t tile = c.first; tile < last; tile += per_group) {
    const int64_t count = std::min(per_group, last - tile);
    gatherer.each_step = divide_up(rows, 2 * count);
    clear_sums<2>();
    const uint8_t* w = planes + (tile - c.first) * 2 * WLimbs * kTileBytes;
    if constexpr (WLimbs == 1)
      multiply_pairs(a + tile * kTile, b + tile * kTile, p.x.stride, w, count, gatherer, supply);
    else multiply_one<WLimbs>(a + tile * kTile, p.x.stride, w, count, gatherer, supply);
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

template <int XLimbs, class Maker>
struct Task {
  using Source = decltype(std::declval<Maker>()(0));
  static constexpr int kWLimbs = Source::kLimbs;
  using Waiting = std::conditional_t<XLimbs == 2, SumsOf<2, kWLimbs>, Partial>;
  static constexpr int kFirstWeight = XLimbs == 2 && kWLimbs == 2 ? 7 : 6;
  const Problem& p;
  const Maker& source;
  const Share& share;
  Supply<Source> supply;
  Waiting* waiting;  // [panel under way][row of the block]
  Finisher<kWLimbs> finisher;
  int configured = 0;

  Task(const Problem& problem, const Maker& maker, const Share& part, uint8_t* scratch)
      : p(problem), source(maker), share(part), supply(problem, scratch),
        waiting(reinterpret_cast<Waiting*>(scratch + planes_bytes(problem))) {}

  void run() {
    const int64_t bands = divide_up(share.last_row - share.first_row, 16);
    each_chunk(p, source, share, supply, bands, [&](const Chunk& c, const uint8_t* planes) { run_chunk(c, planes); });
    finisher.finish();
  }

  void run_chunk(const Chunk& c, const uint8_t* planes) {
    Waiting* block = waiting + (one_stretch(p) ? 0 : c.panel - share.first_panel) * block_rows(p);
    for (int64_t row = share.first_row, rows; row < share.last_row; row += rows) {
      rows = band_rows(p, share.last_row - row);
      const int tile_rows = static_cast<int>(std::min<int64_t>(rows, 16));
      if (tile_rows != configured) configure(configured = tile_rows, kFirstWeight);
      Waiting* sums = block + (row - share.first_row);
      if constexpr (XLimbs == 2) two_limb_band<kWLimbs>(p, row, rows, c, planes, sums, finisher, supply);
      else one_limb_band<kWLimbs>(p, row, rows, c, planes, sums, supply);
    }
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

// Sums 0 and 1 hold (high, low) times the first limb of weight in successive rows, which is just k0 and k1 of a row
// with one limb of weight; 2 and 3 hold the same times the second limb, or times another panel.
struct MixedSums {
  Sums<2> pair[2][8];

  MixedSums() {
    constexpr int64_t kRowBytes = sizeof(Sums<2>) / 2;
    _tile_stored(0, pair[0]->k[0], kRowBytes);
    _tile_stored(1, pair[0]->k[0] + kHalf, kRowBytes);
    _tile_stored(2, pair[1]->k[0], kRowBytes);
    _tile_stored(3, pair[1]->k[0] + kHalf, kRowBytes);
  }
};

template <int WLimbs>
void finish_mixed(const Problem& p, int64_t panel) {
  const MixedSums sums;
  const PanelEnd end(p, panel);
  for (int64_t r = 0; r < p.rows; ++r) {
    if constexpr (WLimbs == 2) finish_two_limbs<2>(end, r, join(sums.pair[0][r], sums.pair[1][r]));
    else finish_two_limbs<1>(end, r, sums.pair[0][r]);
  }
}

// Int8 weights need no making, and so few rows wait for the memory: weights are asked for a fixed way ahead, of two
// panels in turn, since one stream alone does not draw the full bandwidth.
struct TilePrefetcher {
  const uint8_t* at;

  void step() {
    for (const uint8_t* end = at + kTileBytes; at < end; at += kLine) prefetch(at);
  }
};

inline void multiply_panels(const int8_t* a, int64_t stride, const uint8_t* w, const uint8_t* v, int64_t tiles) {
  TilePrefetcher ahead_w{w + kAhead}, ahead_v{v + kAhead};
  for (int64_t t = 0; t < tiles; ++t, a += kTile, w += 2 * kTileBytes, v += 2 * kTileBytes) {
    _tile_stream_loadd(4, a, stride);
    _tile_loadd(6, w, kLine);
    _tile_dpbssd(0, 4, 6);
    ahead_w.step();
    _tile_loadd(7, v, kLine);
    _tile_dpbssd(2, 4, 7);
    ahead_v.step();
    _tile_loadd(6, w + kTileBytes, kLine);
    _tile_dpbssd(1, 4, 6);
    ahead_w.step();
    _tile_loadd(7, v + kTileBytes, kLine);
    _tile_dpbssd(3, 4, 7);
    ahead_v.step();
  }
}

inline void run_plain(const Problem& p, const Share& share) {
  configure(static_cast<int>(2 * p.rows));
  const auto planes = [&](int64_t panel) { return p.w->panel(panel) + p.w->codes; };
  for (int64_t panel = share.first_panel; panel < share.last_panel; panel += 2) {
    const bool both = panel + 1 < share.last_panel;
    clear_sums<2>();
    multiply_panels(p.row(0), p.x.stride, planes(panel), planes(both ? panel + 1 : panel), p.w->num_tiles());
    MixedSums sums;
    for (int i = 0; i < 1 + both; ++i) {
      const PanelEnd end(p, panel + i);
      for (int64_t r = 0; r < p.rows; ++r) finish_two_limbs<1>(end, r, sums.pair[i][r]);
    }
  }
}

template <class Maker>
void run_mixed(const Problem& p, const Maker& source, const Share& share, uint8_t* scratch) {
  using Source = decltype(source(0));
  constexpr int kWLimbs = Source::kLimbs;
  configure(static_cast<int>(2 * p.rows));
  Supply<Source> supply(p, scratch);
  each_chunk(p, source, share, supply, 1, [&](const Chunk& c, const uint8_t* planes) {
    if (c.opens) clear_sums<2>();
    multiply_one<kWLimbs>(p.row(0) + c.first * kTile, p.x.stride, planes, c.tiles, supply, supply);
    if (c.closes) finish_mixed<kWLimbs>(p, c.panel);
  });
}

template <int XLimbs>
void run_task(const Problem& p, const Share& share, uint8_t* scratch) {
  const auto run = [&](const auto& source) {
    if constexpr (XLimbs == 2)
      if (mixed(p)) return run_mixed(p, source, share, scratch);
    if constexpr (XLimbs == 2 && decltype(source(0))::kLimbs == 2)
      if (two_bands(p)) return run_two_bands(p, source, share, scratch);
    Task<XLimbs, std::decay_t<decltype(source)>>(p, source, share, scratch).run();
  };
  if constexpr (XLimbs == 2) {
    if (mixed(p) && plain(p)) return run_plain(p, share);
    if (p.w->limbs == 2 && p.w->is_linear()) return run([&](int64_t panel) { return LinearCodesSource(*p.w, panel); });
  }
  with_source(*p.w, run);
}

inline void run(const Problem& p, const Share& share, uint8_t* scratch) {
  p.x.limbs == 2 ? run_task<2>(p, share, scratch) : run_task<1>(p, share, scratch);
  release();
}

}  // namespace sf::tiles
