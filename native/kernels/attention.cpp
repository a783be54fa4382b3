#include "kernels/attention.h"

#include <vector>

#include "core/context.h"
#include "kernels/attention_call.h"
#include "kernels/attention_float.h"
#include "kernels/attention_vector.h"
#include "kernels/quantise.h"
#if defined(__AMX_INT8__)
#include "attention_tiles.h"
#endif

namespace sf {
namespace {

constexpr int64_t kMaxUnitRows = 256;
constexpr int64_t kUnitsPerThread = 3;     // below this, units are cut by segments
constexpr int64_t kMinCutSegments = 4;

// One thread's memory. kRows: how many a unit may have.
template <class Dots>
struct Work {
  int8_t* q;
  int32_t* bias;
  RowScale* scales;
  float *tops, *sums, *outs;
  uint8_t* weights;
  Dots dots;

  Work(const KvLayout& layout, int64_t rows, Carve memory) : Work(layout, rows, &memory) {}
  Work(const KvLayout& layout, int64_t rows, Carve* memory)
      : q(memory->take<int8_t>(rows * 2 * query_depth(layout))),
        bias(memory->take<int32_t>(rows)),
        scales(memory->take<RowScale>(rows)),
        tops(memory->take<float>(rows)),
        sums(memory->take<float>(rows * kLanes)),
        outs(memory->take<float>(rows * layout.value_dim)),
        weights(memory->take<uint8_t>(kTileRows * 2 * kSegment)),
        dots(layout, *memory) {}

  static int64_t bytes(const KvLayout& layout, int64_t rows) {
    Carve count(nullptr);
    Work work(layout, rows, &count);
    return count.bytes();
  }
  Part part(int64_t row, int64_t value_dim) const { return {tops + row, sums + row * kLanes, outs + row * value_dim}; }
};

RowScale row_scale(const Call& call, float q_scale) {
  const float cap = call.args.softcap, limbs = call.layout.key_limbs == 2 ? 128.0f : 1.0f;
  if (cap > 0) return {cap * kLog2E, q_scale * (call.args.scale * limbs) / cap};
  return {q_scale * (call.args.scale * kLog2E * limbs), 0.0f};
}

template <class Dots>
void quantise_queries(const Call& call, const Unit& unit, Work<Dots>& work) {
  const int64_t depth = query_depth(call.layout);
  for (int64_t row = 0; row < unit.rows; ++row) {
    int8_t* q = work.q + row * 2 * depth;
    float scale;
    quantise_two_limbs(query(call, unit, row), call.layout.head_dim, q, depth, &scale);
    work.bias[row] = query_bias(call.layout, q);
    work.scales[row] = row_scale(call, scale);
  }
}

template <bool kMasked, class Dots>
float softmax_row(const Call& call, Work<Dots>& work, const Segment& segment, int64_t row, int in_tile, int from, int to,
                  Lanes& sums, float& top) {
  const RowScale scale = work.scales[row];
  Lanes x[kSegmentGroups];
  for (int g = 0; g < kSegmentGroups; ++g) {
    const auto* key_scales = reinterpret_cast<const float*>(segment.group[g] + call.layout.scales_at);
    x[g] = mul(to_float(work.dots.total(in_tile, g)), load(key_scales));
  }
  top = probabilities<kMasked>(x, scale.factor, from, to, sums);
  return quantise_probabilities<kMasked>(x, segment, call.layout.scales_at, from, to, work.weights + in_tile * 2 * kSegment);
}

// One row's numbers between softmax and merge.
struct RowPart {
  Lanes sums;
  float top, weight;
  bool sees;
};

template <class Dots>
RowPart softmax(const Call& call, const Unit& unit, Work<Dots>& work, const Segment& segment, int64_t number, int64_t row,
                int in_tile) {
  const int64_t position = call.position(unit.chunk, unit.row + row), start = number * kSegment;
  const int from = static_cast<int>(std::clamp<int64_t>(call.first_visible(position) - start, 0, kSegment));
  const int to = static_cast<int>(std::clamp<int64_t>(position + 1 - start, 0, kSegment));
  RowPart part;
  part.sees = from < to;
  if (!part.sees) return part;
  part.weight = to - from == kSegment
                    ? softmax_row<false>(call, work, segment, row, in_tile, from, to, part.sums, part.top)
                    : softmax_row<true>(call, work, segment, row, in_tile, from, to, part.sums, part.top);
  return part;
}

template <class Dots>
Lanes segment_out(const KvLayout& layout, const Dots& dots, int row, int64_t dim) {
  const Lanes out = to_float(dots.weighed(0, row, dim));
  return layout.value_limbs == 2 ? fma(out, set1(128.0f), to_float(dots.weighed(1, row, dim))) : out;
}

// Rows that do not see the segment get a weight of -1: no part.
void write_part(float* to, const RowPart& part) {
  to[0] = part.top;
  to[1] = part.sees ? part.weight : -1.0f;
  store(to + kLanes, part.sums);
}

template <class Dots>
void attend_tile(const Call& call, const Unit& unit, Work<Dots>& work, int64_t number, const Tile& tile) {
  const Segment segment = find_groups(call, unit, number, tile.first, tile.last);
  const KvLayout& layout = call.layout;
  work.dots.score(segment, {work.q + tile.row * 2 * query_depth(layout), work.bias + tile.row}, tile.rows);
  RowPart parts[kTileRows];
  for (int r = 0; r < tile.rows; ++r) parts[r] = softmax(call, unit, work, segment, number, tile.row + r, r);
  work.dots.weigh(segment, work.weights, tile.rows);
  for (int r = 0; r < tile.rows; ++r) {
    const auto value = [&](int64_t dim) { return segment_out(layout, work.dots, r, dim); };
    if (unit.parts) {
      float* to = unit.parts + ((number - unit.parts_first) * unit.rows + tile.row + r) * part_floats(layout);
      write_part(to, parts[r]);
      for (int64_t dim = 0; dim < layout.value_dim; dim += kLanes) store(to + 2 * kLanes + dim, value(dim));
    } else if (parts[r].sees) {
      merge(work.part(tile.row + r, layout.value_dim), parts[r].top, parts[r].sums, parts[r].weight, layout.value_dim, value);
    }
  }
}

template <class Dots>
void attend(const Call& call, const Unit& unit, Work<Dots>& work) {
  const int64_t value_dim = call.layout.value_dim;
  work.dots.begin();
  quantise_queries(call, unit, work);
  if (!unit.parts)
    for (int64_t row = 0; row < unit.rows; ++row) begin(work.part(row, value_dim), value_dim);
  const Tile whole_first = tile_at(call, unit, 0), whole_last = tile_at(call, unit, (unit.rows - 1) / kTileRows * kTileRows);
  for (int64_t number = unit.first; number < unit.last; ++number) {
    work.dots.visit(find_groups(call, unit, number, whole_first.first, whole_last.last));
    for (int64_t row = 0; row < unit.rows; row += kTileRows) {
      const Tile tile = tile_at(call, unit, row);
      if (tile.last > number * kSegment && tile.first < (number + 1) * kSegment) attend_tile(call, unit, work, number, tile);
    }
  }
  if (!unit.parts)
    for (int64_t row = 0; row < unit.rows; ++row)
      finish(work.part(row, value_dim), sink(call, unit, row), value_dim, result(call, unit, row));
}

void merge_parts(const Call& call, const Unit& unit, int64_t row, float* memory) {
  const KvLayout& layout = call.layout;
  const Part whole{memory, memory + kLanes, memory + 2 * kLanes};
  begin(whole, layout.value_dim);
  for (int64_t segment = 0; segment < unit.last - unit.first; ++segment) {
    const float* part = unit.parts + (segment * unit.rows + row) * part_floats(layout);
    if (part[1] < 0) continue;
    merge(whole, part[0], load(part + kLanes), part[1], layout.value_dim,
          [&](int64_t dim) { return load(part + 2 * kLanes + dim); });
  }
  finish(whole, sink(call, unit, row), layout.value_dim, result(call, unit, row));
}

// ---- sharing out ----

// Few enough rows for every thread to have work, enough to reuse a segment's keys while they are in the cache.
int64_t rows_per_unit(const Call& call, int64_t threads) {
  const int64_t all = call.args.starts[call.args.chunks] - call.args.starts[0];
  const int64_t even = ceil_div(all * call.args.heads, kUnitsPerThread * threads);
  return std::clamp(ceil_div(even, kTileRows) * kTileRows, int64_t(kTileRows), kMaxUnitRows);
}

std::vector<Unit> make_units(const Call& call, int64_t unit_rows) {
  std::vector<Unit> units;
  for (int64_t chunk = 0; chunk < call.args.chunks; ++chunk) {
    const int64_t rows = call.chunk_tokens(chunk) * call.group_heads;
    for (int64_t row = 0; row < rows; row += unit_rows)
      for (int64_t kv_head = 0; kv_head < call.args.cache.kv_heads; ++kv_head) {
        const int64_t count = std::min(unit_rows, rows - row);
        const int64_t first = call.first_visible(call.position(chunk, row)) / kSegment;
        const int64_t last = call.position(chunk, row + count - 1) / kSegment + 1;
        units.push_back({chunk, kv_head, row, count, first, last, nullptr, first});
      }
  }
  // The pool hands out the highest numbers first: the long ones.
  std::sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) { return cost(a) < cost(b); });
  return units;
}

// Units of one tile are cut by segments when there are too few of them for the threads.
int64_t num_cuts(const Unit& unit, int64_t wanted) {
  return unit.rows > kTileRows ? 1 : std::clamp((unit.last - unit.first) / kMinCutSegments, int64_t(1), wanted);
}

struct Plan {
  std::vector<Unit> units;  // what tasks compute
  std::vector<Unit> cut;    // what is merged afterwards
};

Plan make_plan(Context& context, const Call& call) {
  const int64_t threads = context.pool.size();
  Plan plan;
  const std::vector<Unit> whole = make_units(call, rows_per_unit(call, threads));
  const int64_t wanted = ceil_div(kUnitsPerThread * threads, std::max<int64_t>(whole.size(), 1));
  int64_t floats = 0;
  for (const Unit& unit : whole)
    if (num_cuts(unit, wanted) > 1) floats += (unit.last - unit.first) * unit.rows * part_floats(call.layout);
  float* parts = context.shared.get<float>(floats);
  for (Unit unit : whole) {
    const int64_t cuts = num_cuts(unit, wanted), segments = unit.last - unit.first;
    if (cuts > 1) {
      unit.parts = parts;
      parts += segments * unit.rows * part_floats(call.layout);
      plan.cut.push_back(unit);
    }
    for (int64_t i = 0; i < cuts; ++i) {
      Unit piece = unit;
      piece.first = unit.first + segments * i / cuts;
      piece.last = unit.first + segments * (i + 1) / cuts;
      plan.units.push_back(piece);
    }
  }
  return plan;
}

template <class Dots>
void attend_on(Context& context, int thread, const Call& call, const Unit& unit) {
  Work<Dots> work(call.layout, kMaxUnitRows, Carve(context.scratch[thread].get<uint8_t>(1)));
  attend(call, unit, work);
}

void attend_integers(Context& context, const Call& call) {
  const Plan plan = make_plan(context, call);
  int64_t bytes = Work<VectorDots>::bytes(call.layout, kMaxUnitRows);
#if defined(__AMX_INT8__)
  bytes = std::max(bytes, Work<TileDots>::bytes(call.layout, kMaxUnitRows));
#endif
  reserve_scratch<uint8_t>(context, bytes);
  context.pool.run(plan.units.size(), [&](int64_t task, int thread) {
    const Unit& unit = plan.units[task];
#if defined(__AMX_INT8__)
    if (unit.rows >= kTileDotsRows) return attend_on<TileDots>(context, thread, call, unit);
#endif
    attend_on<VectorDots>(context, thread, call, unit);
  });
  for (const Unit& unit : plan.cut)
    context.pool.run(unit.rows, [&](int64_t row, int thread) {
      merge_parts(call, unit, row, context.scratch[thread].get<float>(1));
    });
}

// ---- checks ----

Error check_chunk(const Call& call, int64_t chunk) {
  const sf_attention_args& a = call.args;
  const int64_t tokens = call.chunk_tokens(chunk), length = a.lengths[chunk];
  SF_REQUIRE(tokens >= 0 && length >= tokens && length <= a.table_stride * a.cache.block_size, kBadShape);
  if (!tokens) return kOk;
  const int64_t* table = a.block_table + chunk * a.table_stride;
  const int64_t first = call.first_visible(length - tokens) / a.cache.block_size, last = (length - 1) / a.cache.block_size;
  for (int64_t i = first; i <= last; ++i) SF_REQUIRE(table[i] >= 0 && table[i] < a.cache.num_blocks, kOutOfRange);
  return kOk;
}

Error check_attention(const sf_attention_args& a) {
  if (const Error error = check_kv(a.cache)) return error;
  SF_REQUIRE(a.chunks >= 0 && a.heads > 0 && a.heads % a.cache.kv_heads == 0, kBadShape);
  SF_REQUIRE(a.q_stride >= a.heads * a.cache.head_dim && a.y_stride >= a.heads * a.cache.value_dim, kBadShape);
  SF_REQUIRE(a.table_stride >= 0, kBadShape);
  SF_REQUIRE(a.window >= 0 && a.scale >= 0 && a.softcap >= 0, kBadOption);
  SF_REQUIRE(a.chunks == 0 || (a.q && a.y && a.starts && a.lengths && a.block_table), kNullPointer);
  if (a.chunks) SF_REQUIRE(a.starts[0] >= 0, kBadShape);
  const Call call(a);
  for (int64_t chunk = 0; chunk < a.chunks; ++chunk)
    if (const Error error = check_chunk(call, chunk)) return error;
  return kOk;
}

}  // namespace

Error op_attention(Context& context, sf_attention_args& args) {
  if (const Error error = check_attention(args)) return error;
  if (args.chunks == 0) return kOk;
  const Call call(args);
  if (args.cache.form == kBfloat16) attend_floats(context, call);
  else attend_integers(context, call);
  return kOk;
}

}  // namespace sf
