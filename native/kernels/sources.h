// Where the lines of a panel come from: straight from packed bytes, or expanded from codes as they are read.
// Source::each walks the lines of a range in several panels at once, since one stream alone does not draw the memory's full
// bandwidth, and calls body(line, panel, weights) for each, weights[half][limb] being lines of int8.
#pragma once
#include <type_traits>

#include "dot.h"
#include "kernels/pack.h"

namespace sf {

// How far ahead of the reader the codes are asked for. The hardware's own prefetcher stops at pages.
inline constexpr int64_t kAhead = 4096;
inline void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }

// Weights that are int8 in memory already: [tile][limb][half][line].
template <int Limbs>
struct PlainSource {
  static constexpr int kLimbs = Limbs;
  const uint8_t* planes;

  template <int Panels, class Body>
  static void each(const PlainSource* sources, int64_t first, int64_t last, const Body& body) {
    for (int64_t line = first; line < last; ++line)
      for (int panel = 0; panel < Panels; ++panel) {
        Line w[2][Limbs];
        sources[panel].load(line, w);
        body(line, panel, w);
      }
  }

  void load(int64_t line, Line (&w)[2][Limbs]) const {
    constexpr int64_t kPlane = kTileLines * kLine;
    const uint8_t* tile = planes + line / kTileLines * (2 * Limbs * kPlane) + line % kTileLines * kLine;
    for (int half = 0; half < 2; ++half)
      for (int limb = 0; limb < Limbs; ++limb) {
        const uint8_t* p = tile + (limb * 2 + half) * kPlane;
        prefetch(p + kAhead);
        w[half][limb] = load_line(p);
      }
  }
};

// What the expanding sources share: walks groups, then lines.
struct Grouped {
  const uint8_t* codes;
  const uint8_t* parameters;
  Table table;
  int64_t half_bytes, group_lines;
  int first_entry;  // of the table
  bool with_offsets;

  Grouped(const PackedHeader& h, int64_t panel)
      : codes(h.panel(panel) + h.codes), parameters(h.panel(panel)), table(load_table(h.table)),
        half_bytes(h.half_parameter_bytes()), group_lines(h.group / 4), first_entry(static_cast<int8_t>(h.table[0])),
        with_offsets(h.with_offsets) {}

  // span(first line, how many, where their group's parameters start) over runs of lines that share a group and a tile.
  template <class Span>
  void spans(int64_t first, int64_t last, const Span& span) const {
    const int64_t length = group_lines < kTileLines ? group_lines : kTileLines;
    for (int64_t line = first; line < last; line += length) span(line, length, line / group_lines * 2 * half_bytes);
  }
  const uint8_t* nibbles(int64_t line) const {
    prefetch(codes + line * kLine + kAhead);
    return codes + line * kLine;
  }
};

struct Narrow4Source : Grouped {
  static constexpr int kLimbs = 1;
  using Grouped::Grouped;

  template <int Panels, class Body>
  static void each(const Narrow4Source* sources, int64_t first, int64_t last, const Body& body) {
    sources->spans(first, last, [&](int64_t start, int64_t length, int64_t at) {
      Narrow group[Panels][2];
      for (int panel = 0; panel < Panels; ++panel)
        for (int half = 0; half < 2; ++half) group[panel][half] = load_narrow(sources[panel].parameters + at + half * 32);
      for (int64_t line = start; line < start + length; ++line)
        for (int panel = 0; panel < Panels; ++panel) {
          const Line both = load_line(sources[panel].nibbles(line));
          const Line w[2][1] = {{expand(look_up(sources->table, low_nibbles(both)), group[panel][0])},
                                {expand(look_up(sources->table, high_nibbles(both)), group[panel][1])}};
          body(line, panel, w);
        }
    });
  }
};

template <int Bits>
struct WideSource : Grouped {
  static constexpr int kLimbs = 2;
  using Grouped::Grouped;

  template <int Panels, class Body>
  static void each(const WideSource* sources, int64_t first, int64_t last, const Body& body) {
    sources->spans(first, last, [&](int64_t start, int64_t length, int64_t at) {
      Wide group[Panels][2];
      for (int panel = 0; panel < Panels; ++panel)
        for (int half = 0; half < 2; ++half)
          group[panel][half] = load_wide(sources[panel].parameters + at + half * sources->half_bytes, sources->with_offsets);
      for (int64_t line = start; line < start + length; ++line)
        for (int panel = 0; panel < Panels; ++panel) {
          Line values[2], w[2][2];
          sources[panel].load_values(line, values);
          for (int half = 0; half < 2; ++half) expand<Bits>(values[half], group[panel][half], w[half][0], w[half][1]);
          body(line, panel, w);
        }
    });
  }

  void load_values(int64_t line, Line (&values)[2]) const {
    if constexpr (Bits == 4) {
      const Line both = load_line(nibbles(line));
      values[0] = look_up(table, low_nibbles(both));
      values[1] = look_up(table, high_nibbles(both));
    } else {
      const uint8_t* at = codes + line / kTileLines * 2048 + line % kTileLines * kLine;
      for (int half = 0; half < 2; ++half) {
        prefetch(at + half * 1024 + kAhead);
        values[half] = load_line(at + half * 1024);
      }
    }
  }
};

// Calls f with a maker of the sources that read this format: maker(panel) is one.
template <class F>
void with_source(const PackedHeader& h, const F& f) {
  const auto maker = [&h]<class Source>(std::type_identity<Source>) { return [&h](int64_t panel) { return Source(h, panel); }; };
  if (h.bits == 8 && h.limbs == 1) return f([&h](int64_t panel) { return PlainSource<1>{h.panel(panel) + h.codes}; });
  if (h.bits == 8) return f(maker(std::type_identity<WideSource<8>>{}));
  return h.limbs == 1 ? f(maker(std::type_identity<Narrow4Source>{})) : f(maker(std::type_identity<WideSource<4>>{}));
}

// A source's lines first to last written out as planes: [tile][limb][half][line], what PlainSource and the tiles read. The
// planes begin with line `begin`.
template <class Source>
void write_planes(const Source& source, int64_t begin, int64_t first, int64_t last, uint8_t* planes) {
  constexpr int64_t kPlane = kTileLines * kLine, kLimbs = Source::kLimbs;
  Source::template each<1>(&source, first, last, [&](int64_t line, int, const Line(&w)[2][kLimbs]) {
    const int64_t at = line - begin;
    uint8_t* base = planes + at / kTileLines * (2 * kLimbs * kPlane) + at % kTileLines * kLine;
    for (int half = 0; half < 2; ++half)
      for (int limb = 0; limb < kLimbs; ++limb) store_line(base + (limb * 2 + half) * kPlane, w[half][limb]);
  });
}

}  // namespace sf
