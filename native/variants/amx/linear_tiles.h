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
// - Vector work rides along, a little after every product: the band before is finished, half a row at a time, and the next
//   chunk's codes are expanded, or its weights asked for, line by line. More at a time does not hide: the queue of
//   instructions fills up with it, and the products behind wait.
#pragma once
#include <optional>

#include "counted_source.h"
#include "kernels/codes.h"
#include "tiles.h"

namespace sf::tiles {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline constexpr int64_t kTileBytes = 1024;
inline constexpr int64_t kChunkBytes = 32 << 10;  // of expanded weights of one panel
inline constexpr int64_t kBlockRows = 192;        // rows that share one pass over a task's weights
inline constexpr int64_t kRowsBytes = 1 << 20;    // of a block of rows that stays in L2

inline bool plain(const Problem& p) { return p.w->bits == 8 && p.w->limbs == 1; }
// Few rows are quicker on vectors, more so where vectors need not expand the weights.
inline bool worth(const Problem& p) { return p.rows > (!by_codes(p) ? 2 : p.w->bits == 8 ? 4 : 5); }
inline bool mixed(const Problem& p) { return p.x.limbs == 2 && p.rows <= 8; }

// Rows of the next band, with `left` to go: two full tiles where the second is not the low limb's, else one tile.
inline int64_t band_rows(const Problem& p, int64_t left) {
  const bool pairs = p.x.limbs == 1 && p.w->limbs == 1;
  return pairs && left >= 32 ? 32 : std::min<int64_t>(left, 16);
}
// Its sums need not leave the tiles between chunks, and both buffers of expanded weights stay in L1 if they are small.
inline bool one_band(const Problem& p) { return p.x.limbs == 2 && p.rows <= 16; }
inline int64_t block_rows(const Problem& p) { return std::min<int64_t>(p.rows, kBlockRows); }

// Tiles of one group of one-limb activations.
inline int64_t group_tiles(const Problem& p) { return p.x.group ? p.x.group / kTile : p.w->num_tiles(); }
// Tiles of depth in a chunk: whole groups of one-limb activations.
inline int64_t chunk_tiles(const Problem& p) {
  const int64_t bytes = one_band(p) && !plain(p) ? kChunkBytes / 2 : kChunkBytes;
  const int64_t most = bytes / (2 * kTileBytes * p.w->limbs);
  if (p.x.limbs == 2) return most;
  return std::max(most / group_tiles(p), int64_t(1)) * group_tiles(p);
}

// Tiles of depth that a panel goes through before the next panel's turn: as much of a block of rows as L2 holds.
inline int64_t stretch_tiles(const Problem& p) {
  const int64_t columns = kRowsBytes / (block_rows(p) * p.x.limbs);
  return one_band(p) ? p.w->num_tiles() : std::max(columns / kTile / chunk_tiles(p), int64_t(1)) * chunk_tiles(p);
}

// Does a panel go through its whole depth at once? Then the next one's sums may wait where its own did, warm in L2.
inline bool one_stretch(const Problem& p) { return stretch_tiles(p) >= p.w->num_tiles(); }

// Scratch: the expanded planes of two chunks, the one in use and the next, then the waiting sums (two limbs) or partial sums
// (one limb) of a block of rows for each panel under way.
inline int64_t chunk_bytes(const Problem& p) { return chunk_tiles(p) * 2 * kTileBytes * p.w->limbs; }
inline int64_t planes_bytes(const Problem& p) { return plain(p) ? 0 : 2 * chunk_bytes(p); }
inline int64_t scratch_bytes(const Problem& p, int64_t task_panels) {
  const bool waits = p.x.limbs == 1 || (p.w->num_tiles() > chunk_tiles(p) && !one_band(p));
  const int64_t each = p.x.limbs == 1 ? sizeof(Partial) : p.w->limbs == 1 ? sizeof(SumsOf<2, 1>) : sizeof(SumsOf<2, 2>);
  return planes_bytes(p) + (waits ? (one_stretch(p) ? 1 : task_panels) * block_rows(p) * each : 0) + 64;
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

// ---- products: planes w are [tile][limb][half]; even and odd do vector work in the shadow of a product, in turn ----

// Two tiles of rows times one limb of weight.
template <class Even, class Odd>
inline void multiply_pairs(const int8_t* a, const int8_t* b, int64_t stride, const uint8_t* w, int64_t tiles, Even& even, Odd& odd) {
  for (int64_t t = 0; t < tiles; ++t, a += kTile, b += kTile, w += 2 * kTileBytes) {
    _tile_stream_loadd(4, a, stride);
    _tile_loadd(6, w, kLine);
    _tile_dpbssd(0, 4, 6);
    even.step();
    _tile_loadd(7, w + kTileBytes, kLine);
    _tile_dpbssd(1, 4, 7);
    odd.step();
    _tile_stream_loadd(5, b, stride);
    _tile_dpbssd(2, 5, 6);
    even.step();
    _tile_dpbssd(3, 5, 7);
    odd.step();
  }
}

// One tile of rows times all limbs.
template <int WLimbs, class Even, class Odd>
inline void multiply_one(const int8_t* a, int64_t stride, const uint8_t* w, int64_t tiles, Even& even, Odd& odd) {
  for (int64_t t = 0; t < tiles; ++t, a += kTile, w += 2 * WLimbs * kTileBytes) {
    _tile_stream_loadd(4, a, stride);
    _tile_loadd(6, w, kLine);
    _tile_dpbssd(0, 4, 6);
    even.step();
    _tile_loadd(7, w + kTileBytes, kLine);
    _tile_dpbssd(1, 4, 7);
    odd.step();
    if constexpr (WLimbs == 2) {
      _tile_loadd(6, w + 2 * kTileBytes, kLine);
      _tile_dpbssd(2, 4, 6);
      even.step();
      _tile_loadd(7, w + 3 * kTileBytes, kLine);
      _tile_dpbssd(3, 4, 7);
      odd.step();
    }
  }
}

// Two limbs by two. Sums 2 and 3 get two products each, kept four apart, since a product's result is ready after about 52
// cycles.
template <class Even, class Odd>
inline void multiply_two_by_two(const int8_t* high, const int8_t* low, int64_t stride, const uint8_t* w, int64_t tiles, Even& even, Odd& odd) {
  for (int64_t t = 0; t < tiles; ++t, high += kTile, low += kTile, w += 4 * kTileBytes) {
    _tile_stream_loadd(6, high, stride);
    _tile_loadd(7, w + 2 * kTileBytes, kLine);
    _tile_dpbssd(2, 6, 7);
    even.step();
    _tile_loadd(7, w + 3 * kTileBytes, kLine);
    _tile_dpbssd(3, 6, 7);
    odd.step();
    _tile_loadd(7, w + kTileBytes, kLine);
    _tile_dpbssd(1, 6, 7);
    even.step();
    _tile_loadd(7, w, kLine);
    _tile_dpbssd(0, 6, 7);
    odd.step();
    _tile_stream_loadd(6, low, stride);
    _tile_dpbssd(2, 6, 7);
    even.step();
    _tile_loadd(7, w + kTileBytes, kLine);
    _tile_dpbssd(3, 6, 7);
    odd.step();
    _tile_loadd(7, w + 3 * kTileBytes, kLine);
    _tile_dpbssd(5, 6, 7);
    even.step();
    _tile_loadd(7, w + 2 * kTileBytes, kLine);
    _tile_dpbssd(4, 6, 7);
    odd.step();
  }
}

// Steps of supply while a band is multiplied by a tile of depth.
inline int64_t tile_steps(const Problem& p) { return p.x.limbs == 1 ? 2 : 2 * p.w->limbs; }

// ---- one panel's chunk of depth ----

struct Chunk {
  int64_t panel, first, tiles;
  bool opens, closes;  // the first, the last of the depth
};

// A task's chunks in turn: down the stretch, then the same stretch of the next panel; after the last panel, the next stretch.
struct Chunks {
  const Problem& p;
  const Share& share;

  Chunk at(int64_t panel, int64_t first) const {
    const int64_t tiles = p.w->num_tiles(), count = std::min(chunk_tiles(p), tiles - first);
    return {panel, first, count, first == 0, first + count == tiles};
  }
  Chunk first() const { return at(share.first_panel, 0); }
  std::optional<Chunk> after(const Chunk& c) const {
    const int64_t stretch = stretch_tiles(p), start = c.first / stretch * stretch, tile = c.first + c.tiles;
    if (!c.closes && tile % stretch) return at(c.panel, tile);
    if (c.panel + 1 < share.last_panel) return at(c.panel + 1, start);
    if (start + stretch < p.w->num_tiles()) return at(share.first_panel, start + stretch);
    return {};
  }
};

// Makes the next chunk's weights ready in the shadow of the products of the one before, which take so many steps. Weights
// that are int8 already are asked for; codes are expanded into whichever of two buffers is not in use.
template <class Source>
class Supply {
 public:
  static constexpr bool kPlain = std::is_same_v<Source, PlainSource<1>>;

  Supply(const Problem& p, uint8_t* scratch) : p_(p), scratch_(scratch) {}

  void start(const Source& source, const Chunk& c, int64_t steps) {
    const int64_t lines = c.tiles * kTileLines;
    source_.emplace(source);
    span_ = source.span();
    line_ = c.first * kTileLines, last_ = line_ + lines;
    if constexpr (kPlain) planes_ = source.planes + c.first * kTileStep;
    else planes_ = scratch_ + (second_ = !second_) * chunk_bytes(p_);
    out_ = planes_;
    left_ = pause_ = std::max<int64_t>(steps / lines, 1);
    each_ = divide_up(lines, steps);
  }
  void step() {
    if (--left_) return;
    left_ = pause_;
    if (line_ == last_) return;
    if (each_ == 1) return make_lines<1>();
    if (each_ == 2) return make_lines<2>();
    for (int64_t i = 0; i < each_ && line_ < last_; i += 4) make_lines<4>();
  }
  // Where the chunk's planes are, all of them ready.
  const uint8_t* finish() {
    if constexpr (kPlain) return planes_;
    while (line_ % 4 && line_ < last_) make_lines<1>();
    while (line_ < last_) make_lines<4>();
    return planes_;
  }

 private:
  using Byte = std::conditional_t<kPlain, const uint8_t, uint8_t>;
  static constexpr int kPlanes = 2 * Source::kLimbs;
  static constexpr int64_t kTileStep = kPlanes * kTileBytes;

  // Count lines from a multiple of Count on, so that they share a tile and a group.
  template <int Count>
  void make_lines() {
    if constexpr (kPlain) {
      for (int i = 0; i < Count; ++i)
        for (int half = 0; half < 2; ++half) __builtin_prefetch(out_ + i * kLine + half * kTileBytes, 0, 2);
    } else {
      expand_lines<Count>();
    }
    line_ += Count;
    out_ += line_ % kTileLines ? Count * kLine : kTileStep - kTileBytes + Count * kLine;
  }
  template <int Count>
  [[gnu::noinline]] void expand_lines() {
    if ((line_ & (span_ - 1)) == 0) group_ = source_->group(line_);  // spans are powers of two
    Line w[Count][2][Source::kLimbs];
    for (int i = 0; i < Count; ++i) source_->weights(line_ + i, group_, w[i]);
    uint8_t* out = out_;
    for (int i = 0; i < Count; ++i)
      for (int plane = 0; plane < kPlanes; ++plane) store_line(out + i * kLine + plane * kTileBytes, w[i][plane % 2][plane / 2]);
  }

  const Problem& p_;
  uint8_t* scratch_;
  Byte* planes_ = nullptr;
  Byte* out_ = nullptr;
  std::optional<Source> source_;
  typename Source::Group group_;
  int64_t span_ = 1, line_ = 0, last_ = 0;
  int64_t each_ = 0, pause_ = 1, left_ = 1;  // so many lines at every so many-th step
  bool second_ = false;  // of the two buffers
};

// body(chunk, planes) for a task's chunks, each made ready while the one before is multiplied.
template <class Maker, class Source, class Body>
void each_chunk(const Problem& p, const Maker& source, const Share& share, Supply<Source>& supply, int64_t bands, const Body& body) {
  const Chunks chunks{p, share};
  std::optional<Chunk> next = chunks.first();
  supply.start(source(next->panel), *next, 1);
  while (next) {
    const Chunk c = *next;
    const uint8_t* planes = supply.finish();
    if ((next = chunks.after(c))) supply.start(source(next->panel), *next, bands * c.tiles * tile_steps(p));
    body(c, planes);
  }
}

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
void two_limb_band(const Problem& p, int64_t row, int64_t rows, const Chunk& c, const uint8_t* planes, SumsOf<2, WLimbs>* waiting,
                   Finisher<WLimbs>& finisher, Supply<Source>& supply) {
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
    if constexpr (WLimbs == 1) multiply_pairs(a + tile * kTile, b + tile * kTile, p.x.stride, w, count, gatherer, supply);
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
    const int64_t bands = (share.last_row - share.first_row + 15) / 16;
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

// Sums 0 and 1 hold (high, low) times the first limb in successive rows, which is just k0 and k1 of a row with one limb
// of weight; 2 and 3 hold the same times the second limb.
template <int WLimbs>
void finish_mixed(const Problem& p, int64_t panel) {
  Sums<2> first[8], second[8];
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

// So few rows wait for the memory: int8 weights are asked for a fixed way ahead, over the ends of chunks.
struct Ahead {
  const uint8_t* at;

  void step() {
    for (const uint8_t* end = at + kTileBytes; at < end; at += kLine) prefetch(at);
  }
};

template <class Maker>
void run_mixed(const Problem& p, const Maker& source, const Share& share, uint8_t* scratch) {
  using Source = decltype(source(0));
  constexpr int kWLimbs = Source::kLimbs;
  configure(static_cast<int>(2 * p.rows));
  Supply<Source> supply(p, scratch);
  each_chunk(p, source, share, supply, 1, [&](const Chunk& c, const uint8_t* planes) {
    if (c.opens) clear_sums<2>();
    Ahead ahead{planes + 2 * kAhead};
    const int8_t* rows = p.row(0) + c.first * kTile;
    if constexpr (Supply<Source>::kPlain) multiply_one<1>(rows, p.x.stride, planes, c.tiles, ahead, ahead);
    else multiply_one<kWLimbs>(rows, p.x.stride, planes, c.tiles, supply, supply);
    if (c.closes) finish_mixed<kWLimbs>(p, c.panel);
  });
}

template <int XLimbs>
void run_task(const Problem& p, const Share& share, uint8_t* scratch) {
  const auto run = [&](const auto& source) {
    if constexpr (XLimbs == 2)
      if (mixed(p)) return run_mixed(p, source, share, scratch);
    Task<XLimbs, std::decay_t<decltype(source)>>(p, source, share, scratch).run();
  };
  if constexpr (XLimbs == 2)
    if (by_codes(p) && counts(*p.w)) return run([&](int64_t panel) { return CountedSource(*p.w, panel); });
  with_source(*p.w, run);
}

inline void run(const Problem& p, const Share& share, uint8_t* scratch) {
  p.x.limbs == 2 ? run_task<2>(p, share, scratch) : run_task<1>(p, share, scratch);
  release();
}

}  // namespace sf::tiles
