// The geometry of one attention call: who sees which tokens, and where their bytes are.
#pragma once
#include <algorithm>

#include "core/sizes.h"
#include "kernels/attention.h"

namespace sf::attention {

// One call's constants. A "row" below is one (token, query head) of a kv head's share of a chunk, heads innermost.
struct Call {
  const sf_attention_args& args;
  KvLayout layout;
  int64_t group_heads;  // query heads per kv head

  explicit Call(const sf_attention_args& a)
      : args(a), layout(kv_layout(a.cache)), group_heads(a.heads / a.cache.kv_heads) {}

  int64_t chunk_tokens(int64_t chunk) const { return args.starts[chunk + 1] - args.starts[chunk]; }
  int64_t position(int64_t chunk, int64_t row) const {
    return args.lengths[chunk] - chunk_tokens(chunk) + row / group_heads;
  }
  int64_t first_visible(int64_t position) const {
    if (args.fixed) return position - position % args.window;
    const int64_t window = args.window < 0 ? -args.window : args.window;
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
  // Behind the last token that a query at this position sees.
  int64_t end_visible(int64_t chunk, int64_t position) const {
    return args.window < 0 ? std::min(position - args.window, args.lengths[chunk]) : position + 1;
  }
  // The group at a place in one of the chunk's blocks.
  const uint8_t* group(int64_t chunk, int64_t kv_head, int64_t block, int64_t place) const {
    const int64_t stored = args.block_table[chunk * args.table_stride + block];
    return kv_record(args.cache, layout, stored, kv_head) + place * layout.group_bytes;
  }
};

// Some rows of one kv head of one chunk, over some segments: what one task computes. If a unit's segments are shared
// out over several tasks, each writes its segments' parts down at `parts` and they are merged afterwards.
struct Unit {
  int64_t chunk, kv_head, row, rows;
  int64_t first, last;  // segments
  float* parts;         // [all segments of the rows][rows][part_floats], or null
  int64_t parts_first;  // the segment that parts begins with
};

inline int64_t cost(const Unit& unit) { return unit.rows * (unit.last - unit.first); }

// A segment's part of a row on its way to the merge: top, weight, 14 unused; sums[16]; out[value_dim].
inline int64_t part_floats(const KvLayout& layout) { return 2 * kLanes + layout.value_dim; }

inline const float* query(const Call& call, const Unit& unit, int64_t row) {
  const int64_t token = (unit.row + row) / call.group_heads, head = (unit.row + row) % call.group_heads;
  const sf_attention_args& a = call.args;
  return a.q + (a.starts[unit.chunk] + token) * a.q_stride +
         (unit.kv_head * call.group_heads + head) * call.layout.head_dim;
}

inline float* result(const Call& call, const Unit& unit, int64_t row) {
  const int64_t token = (unit.row + row) / call.group_heads, head = (unit.row + row) % call.group_heads;
  const sf_attention_args& a = call.args;
  return a.y + (a.starts[unit.chunk] + token) * a.y_stride +
         (unit.kv_head * call.group_heads + head) * call.layout.value_dim;
}

// The row's head's entry of an array with one for each head, which may be null.
inline const float* of_head(const float* array, const Call& call, const Unit& unit, int64_t row) {
  return array ? array + unit.kv_head * call.group_heads + (unit.row + row) % call.group_heads : nullptr;
}

// Rows row to row + rows - 1 of the unit and what they see of a segment.
struct Tile {
  int64_t row;
  int rows;
  int64_t first, last;  // tokens that at least one row sees, by absolute position
};

inline Tile tile_at(const Call& call, const Unit& unit, const int64_t* positions, int64_t row) {
  const int rows = static_cast<int>(std::min<int64_t>(kTileRows, unit.rows - row));
  return {row, rows, call.first_visible(positions[row]), call.end_visible(unit.chunk, positions[row + rows - 1])};
}

// A segment without those groups that hold none of the tokens from `first` to `last` - 1, counted from its start.
inline Segment narrowed(Segment s, int64_t first, int64_t last) {
  s.first = static_cast<int>(std::max<int64_t>(first, 0) / kGroupTokens);
  s.last = static_cast<int>(divide_up(std::min<int64_t>(last, kSegment), kGroupTokens));
  return s;
}

// The groups of a segment that hold tokens from `first` to `last` - 1.
inline Segment find_groups(const Call& call, const Unit& unit, int64_t segment, int64_t first, int64_t last) {
  Segment s = narrowed({}, first - segment * kSegment, last - segment * kSegment);
  const int64_t number = segment * kSegmentGroups + s.first, block_groups = call.layout.block_groups;
  int64_t block = number / block_groups, place = number % block_groups;  // the only divisions: they are slow
  for (int g = 0; g < kSegmentGroups; ++g) {
    s.group[g] = call.group(unit.chunk, unit.kv_head, block, place);
    if (g < s.first || g >= s.last - 1) continue;
    if (++place == block_groups) place = 0, ++block;
  }
  return s;
}

// What a unit begins with.
inline Segment first_groups(const Call& call, const Unit& unit) {
  const int64_t last_row = unit.row + unit.rows - 1;
  return find_groups(call, unit, unit.first, call.first_visible(call.position(unit.chunk, unit.row)),
                     call.end_visible(unit.chunk, call.position(unit.chunk, last_row)));
}

}  // namespace sf::attention
