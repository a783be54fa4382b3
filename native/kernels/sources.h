// Where the lines of a panel come from: straight from packed bytes, or expanded from codes as they are read.
// A Source calls body(line, weights) for every line of a range, weights[half][limb] being lines of int8.
#pragma once
#include "dot.h"
#include "kernels/pack.h"

namespace sf {

// How far ahead of the reader the codes are asked for. The hardware's own prefetcher stops at pages.
inline constexpr int64_t kAhead = 2048;
inline void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }

// Weights that are int8 in memory already: [tile][limb][half][line].
template <int Limbs>
struct PlainSource {
  static constexpr int kLimbs = Limbs;
  const uint8_t* planes;

  template <class Body>
  void each(int64_t first, int64_t last, const Body& body) const {
    constexpr int64_t kPlane = kTileLines * kLine;
    for (int64_t tile = first / kTileLines; tile < last / kTileLines; ++tile) {
      const uint8_t* base = planes + tile * (2 * Limbs * kPlane);
      for (int64_t j = 0; j < kTileLines; ++j) {
        Line w[2][Limbs];
        for (int half = 0; half < 2; ++half)
          for (int limb = 0; limb < Limbs; ++limb) {
            const uint8_t* p = base + (limb * 2 + half) * kPlane + j * kLine;
            w[half][limb] = load_line(p);
            prefetch(p + kAhead);
          }
        body(tile * kTileLines + j, w);
      }
    }
  }
};

// What the expanding sources share: walks groups, then lines.
struct Grouped {
  const uint8_t* codes;
  const uint8_t* parameters;
  Table table;
  int64_t half_bytes, group_lines;
  bool with_offsets;

  Grouped(const PackedHeader& h, int64_t panel)
      : codes(h.panel(panel) + h.codes), parameters(h.panel(panel)), table(load_table(h.table)),
        half_bytes(h.half_parameter_bytes()), group_lines(h.group / 4), with_offsets(h.with_offsets) {}

  // span(first line, its group's parameters) over runs of lines that share a group and a tile.
  template <class Span>
  void spans(int64_t first, int64_t last, const Span& span) const {
    const int64_t length = group_lines < kTileLines ? group_lines : kTileLines;
    for (int64_t line = first; line < last; line += length)
      span(line, length, parameters + line / group_lines * 2 * half_bytes);
  }
  const uint8_t* nibbles(int64_t line) const {
    prefetch(codes + line * kLine + kAhead);
    return codes + line * kLine;
  }
};

struct Narrow4Source : Grouped {
  static constexpr int kLimbs = 1;
  using Grouped::Grouped;

  template <class Body>
  void each(int64_t first, int64_t last, const Body& body) const {
    spans(first, last, [&](int64_t start, int64_t length, const uint8_t* p) {
      const Narrow group[2] = {load_narrow(p), load_narrow(p + 32)};
      for (int64_t line = start; line < start + length; ++line) {
        const Line both = load_line(nibbles(line));
        const Line w[2][1] = {{expand(look_up(table, low_nibbles(both)), group[0])},
                              {expand(look_up(table, high_nibbles(both)), group[1])}};
        body(line, w);
      }
    });
  }
};

template <int Bits>
struct WideSource : Grouped {
  static constexpr int kLimbs = 2;
  using Grouped::Grouped;

  template <class Body>
  void each(int64_t first, int64_t last, const Body& body) const {
    spans(first, last, [&](int64_t start, int64_t length, const uint8_t* p) {
      const Wide group[2] = {load_wide(p, with_offsets), load_wide(p + half_bytes, with_offsets)};
      for (int64_t line = start; line < start + length; ++line) {
        Line values[2], w[2][2];
        load_values(line, values);
        for (int half = 0; half < 2; ++half) expand(values[half], group[half], w[half][0], w[half][1]);
        body(line, w);
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

// Calls f with the source that reads a panel of this format.
template <class F>
void with_source(const PackedHeader& h, int64_t panel, const F& f) {
  if (h.bits == 8 && h.limbs == 1) return f(PlainSource<1>{h.panel(panel) + h.codes});
  if (h.bits == 8) return f(WideSource<8>(h, panel));
  return h.limbs == 1 ? f(Narrow4Source(h, panel)) : f(WideSource<4>(h, panel));
}

// A source's lines written out as planes: [tile][limb][half][line], what PlainSource and the tiles read.
template <class Source>
void write_planes(const Source& source, int64_t first, int64_t last, uint8_t* planes) {
  constexpr int64_t kPlane = kTileLines * kLine, kLimbs = Source::kLimbs;
  source.each(first, last, [&](int64_t line, const Line(&w)[2][kLimbs]) {
    const int64_t at = line - first;
    uint8_t* base = planes + at / kTileLines * (2 * kLimbs * kPlane) + at % kTileLines * kLine;
    for (int half = 0; half < 2; ++half)
      for (int limb = 0; limb < kLimbs; ++limb) store_line(base + (limb * 2 + half) * kPlane, w[half][limb]);
  });
}

}  // namespace sf
