// Where the lines of a panel come from: straight from packed bytes, or expanded from codes as they are read.
// A source gives the weights of a line, w[half][limb] being lines of int8: weights(line, group, w), where group(line)
// is what the span() lines from a multiple of span() on have in common. Those of two limbs give one half alone too.
#pragma once
#include <type_traits>

#include "kernels/compact.h"

namespace sf {

// body(line, panel, w) for the lines of a range, in several panels in turn: one stream alone does not draw the memory's
// full bandwidth.
template <int Panels, class Source, class Body>
void each_line(const Source* sources, int64_t first, int64_t last, const Body& body) {
  const int64_t span = sources->span();
  for (int64_t start = first; start < last; start += span) {
    typename Source::Group groups[Panels];
    for (int panel = 0; panel < Panels; ++panel) groups[panel] = sources[panel].group(start);
    for (int64_t line = start; line < start + span; ++line)
      for (int panel = 0; panel < Panels; ++panel) {
        Line w[2][Source::kLimbs];
        sources[panel].weights(line, groups[panel], w);
        body(line, panel, w);
      }
  }
}

// Weights that are int8 in memory already: [tile][limb][half][line].
template <int Limbs>
struct PlainSource {
  static constexpr int kLimbs = Limbs;
  struct Group {};
  const uint8_t* planes;

  int64_t span() const { return kTileLines; }
  Group group(int64_t) const { return {}; }
  void weights(int64_t line, const Group&, Line (&w)[2][Limbs]) const {
    const uint8_t* tile = planes + line / kTileLines * (2 * Limbs * kPlaneBytes) + line % kTileLines * kLine;
    for (int half = 0; half < 2; ++half)
      for (int limb = 0; limb < Limbs; ++limb) {
        const uint8_t* p = tile + (limb * 2 + half) * kPlaneBytes;
        prefetch(p + kAhead);
        w[half][limb] = load_line(p);
      }
  }
};

// What the expanding sources share. The lines of a tile may be read once it has been entered; group() does so.
struct Grouped {
  mutable const uint8_t* codes;
  mutable const uint8_t* parameters;
  Table table;
  int64_t half_bytes, group_lines;
  int first_entry, code_centre;  // of the table
  bool with_offsets, narrow_codes, narrow_scales;
  int64_t panel_bytes;
  mutable CompactPanel compact;  // where codes and parameters are, if they are narrow in memory

  Grouped(const PackedHeader& h, int64_t panel)
      : codes(h.panel(panel) + h.codes), parameters(h.panel(panel)), table(load_table(h.table)),
        half_bytes(h.half_parameter_bytes()), group_lines(h.group / 4), first_entry(static_cast<int8_t>(h.table[0])),
        code_centre(h.code_centre()), with_offsets(h.with_offsets), narrow_codes(h.has_narrow_codes()),
        narrow_scales(h.has_narrow_scales()), panel_bytes(h.panel_bytes), compact(h, panel) {}

  // Before lines from a multiple of span() on are read. True: pointers into the panel are no longer valid.
  bool enter(int64_t line) const { return enter(line, panel_bytes); }
  bool enter(int64_t line, int64_t to_next) const {
    if (!(narrow_codes || narrow_scales) || line % kTileLines) return false;
    compact.enter(line, to_next, codes, parameters);
    return true;
  }

  int64_t span() const { return group_lines < kTileLines ? group_lines : kTileLines; }
  const uint8_t* parameters_of(int64_t line, int half) const {
    const int64_t group = static_cast<uint32_t>(line) / static_cast<uint32_t>(group_lines);
    return parameters + (group * 2 + half) * half_bytes;
  }
  const uint8_t* nibbles(int64_t line) const {
    prefetch(codes + line * kLine + kAhead);
    return codes + line * kLine;
  }
};

// Its table starts at zero: a linear one need not be looked up.
template <bool Counts>
struct Narrow4Source : Grouped {
  static constexpr int kLimbs = 1;
  struct Group {
    Narrow half[2];
  };
  using Grouped::Grouped;

  Group group(int64_t line) const {
    return {{load_narrow(parameters_of(line, 0)), load_narrow(parameters_of(line, 1))}};
  }
  void weights(int64_t line, const Group& group, Line (&w)[2][1]) const {
    const Line both = load_line(nibbles(line));
    w[0][0] = expand(value(low_nibbles(both)), group.half[0]);
    w[1][0] = expand(value(high_nibbles(both)), group.half[1]);
  }
  Line value(Line nibble) const {
    if constexpr (Counts) return nibble;
    else return look_up(table, nibble);
  }
};

template <int Bits>
struct WideSource : Grouped {
  static constexpr int kLimbs = 2, kBits = Bits;
  struct Group {
    Wide half[2];
  };
  using Grouped::Grouped;

  Group group(int64_t line) const {
    enter(line);
    return {{load_wide(parameters_of(line, 0), with_offsets), load_wide(parameters_of(line, 1), with_offsets)}};
  }
  void weights(int64_t line, const Group& group, Line (&w)[2][2]) const {
    half_weights<0>(line, group, w[0]);
    half_weights<1>(line, group, w[1]);
  }
  template <int Half>
  void half_weights(int64_t line, const Group& group, Line (&w)[2]) const {
    expand<Bits>(values<Half>(line), group.half[Half], w[0], w[1]);
  }
  template <int Half>
  Line values(int64_t line) const {
    if constexpr (Bits == 4) {
      const Line both = load_line(Half == 0 ? nibbles(line) : codes + line * kLine);
      return look_up(table, Half == 0 ? low_nibbles(both) : high_nibbles(both));
    } else {
      const uint8_t* at = codes + (line / kTileLines * 2 + Half) * kPlaneBytes + line % kTileLines * kLine;
      prefetch(at + kAhead);
      return load_line(at);
    }
  }
};

// Calls f with a maker of the sources that read this format: maker(panel) is one.
template <class F>
void with_source(const PackedHeader& h, const F& f) {
  const auto maker = [&h]<class Source>(std::type_identity<Source>) {
    return [&h](int64_t panel) { return Source(h, panel); };
  };
  if (h.bits == 8 && h.limbs == 1) return f([&h](int64_t panel) { return PlainSource<1>{h.panel(panel) + h.codes}; });
  if (h.bits == 8) return f(maker(std::type_identity<WideSource<8>>{}));
  if (h.limbs == 2) return f(maker(std::type_identity<WideSource<4>>{}));
  return h.is_linear() ? f(maker(std::type_identity<Narrow4Source<true>>{}))
                       : f(maker(std::type_identity<Narrow4Source<false>>{}));
}

// All of a source's lines written out as planes: [tile][limb][half][line], what PlainSource reads.
template <class Source>
void write_planes(const Source& source, int64_t lines, uint8_t* planes) {
  constexpr int64_t kLimbs = Source::kLimbs;
  each_line<1>(&source, 0, lines, [&](int64_t line, int, const Line(&w)[2][kLimbs]) {
    uint8_t* base = planes + line / kTileLines * (2 * kLimbs * kPlaneBytes) + line % kTileLines * kLine;
    for (int half = 0; half < 2; ++half)
      for (int limb = 0; limb < kLimbs; ++limb) store_line(base + (limb * 2 + half) * kPlaneBytes, w[half][limb]);
  });
}

}  // namespace sf
