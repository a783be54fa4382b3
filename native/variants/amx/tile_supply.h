// A task's chunks of depth in turn, and their weights made ready in the shadow of the products of the chunk before.
#pragma once
#include <optional>

#include "tile_shape.h"

namespace sf::tiles {

// One half of a panel's lines: w[0][limb].
template <class Source>
struct HalfSource {
  static constexpr int kLimbs = Source::kLimbs;
  using Group = typename Source::Group;
  Source source;
  bool upper;

  int64_t span() const { return source.span(); }
  Group group(int64_t line) const { return source.group(line); }
  void weights(int64_t line, const Group& group, Line (&w)[1][kLimbs]) const {
    upper ? source.template half_weights<1>(line, group, w[0]) : source.template half_weights<0>(line, group, w[0]);
  }
};
template <class Source>
inline constexpr int halves_of = 2;
template <class Source>
inline constexpr int halves_of<HalfSource<Source>> = 1;

// Steps of supply while a band is multiplied by a tile of depth.
inline int64_t tile_steps(const Problem& p) { return p.x.limbs == 1 ? 2 : 2 * p.w->limbs; }

// A panel's part of the depth.
struct Chunk {
  int64_t panel, first, tiles;
  bool opens, closes;  // the first, the last of the depth
};

// A task's chunks in turn: down the stretch, then the same stretch of the next panel; after the last panel, the next
// stretch.
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

// Makes the next chunk's weights ready in the shadow of the products of the one before, which take so many steps.
// Weights that are int8 already are asked for; codes are expanded into whichever of two buffers is not in use.
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
  static constexpr int kHalves = halves_of<Source>, kPlanes = kHalves * Source::kLimbs;
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
    Line w[Count][kHalves][Source::kLimbs];
    for (int i = 0; i < Count; ++i) source_->weights(line_ + i, group_, w[i]);
    uint8_t* out = out_;
    for (int i = 0; i < Count; ++i)
      for (int plane = 0; plane < kPlanes; ++plane)
        store_line(out + i * kLine + plane * kTileBytes, w[i][plane % kHalves][plane / kHalves]);
  }

  const Problem& p_;
  uint8_t* scratch_;
  Byte* planes_ = nullptr;
  Byte* out_ = nullptr;
  std::optional<Source> source_;
  typename Source::Group group_;
  int64_t span_ = 1, line_ = 0, last_ = 0;
  int64_t each_ = 0, pause_ = 1, left_ = 1;  // so many lines at every so many-th step
  bool second_ = false;                      // of the two buffers
};

// body(chunk, planes) for a task's chunks, each made ready while the one before is multiplied.
template <class Maker, class Source, class Body>
void each_chunk(const Problem& p, const Maker& source, const Share& share, Supply<Source>& supply, int64_t bands,
                const Body& body) {
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

}  // namespace sf::tiles
