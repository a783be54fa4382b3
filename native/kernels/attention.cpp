#include "kernels/attention.h"

#include <optional>
#include <vector>

#include "attention_many_rows.h"  // of the variant
#include "core/context.h"
#include "kernels/attention_call.h"
#include "kernels/attention_float.h"
#include "kernels/attention_vector.h"
#include "kernels/quantise.h"

namespace sf {
namespace attention {
namespace {

constexpr int64_t kMaxUnitRows = 256;
constexpr int64_t kUnitsPerThread = 3;
constexpr int64_t kTailCuts = 4;  // of the units that are claimed last
constexpr int64_t kMinCutSegments = 4;
constexpr int64_t kMaxWindow = int64_t(1) << 40;  // of both sides: positions and windows add up without overflow

// What a call does to logits before the softmax, beside scaling them.
enum class Bend { kNone, kCap, kSlope };

// What a row's logits are made with: x * factor, after tanh(x * inner) if there is a softcap, or fma(distance, slope,
// x * inner) if logits fall.
struct RowScale {
  float factor, inner, slope;
};

// One thread's memory, for units of up to `rows` rows.
template <class Dots>
struct Work {
  int8_t* q;
  int32_t* bias;
  RowScale* scales;
  int64_t* positions;
  float *tops, *sums, *outs;
  float* logits;     // [kTileRows][kSegment], of the tile at hand
  uint8_t* weights;  // [2 tiles in turn][kTileRows][2][kSegment]
  Dots dots;

  Work(const KvLayout& layout, int64_t rows, Carve memory) : Work(layout, rows, &memory) {}
  Work(const KvLayout& layout, int64_t rows, Carve* memory)
      : q(memory->take<int8_t>(rows * 2 * query_depth(layout))), bias(memory->take<int32_t>(rows)),
        scales(memory->take<RowScale>(rows)), positions(memory->take<int64_t>(rows)), tops(memory->take<float>(rows)),
        sums(memory->take<float>(rows * kLanes)), outs(memory->take<float>(rows * layout.value_dim)),
        logits(memory->take<float>(kTileRows * kSegment)), weights(memory->take<uint8_t>(2 * kTileRows * 2 * kSegment)),
        dots(layout, rows, *memory) {}

  static int64_t bytes(const KvLayout& layout, int64_t rows) {
    Carve count(nullptr);
    Work work(layout, rows, &count);
    return count.bytes();
  }
  Part part(int64_t row, int64_t value_dim) const { return {tops + row, sums + row * kLanes, outs + row * value_dim}; }
};

RowScale row_scale(const Call& call, float q_scale, const float* slope) {
  const float cap = call.args.softcap, limbs = call.layout.key_limbs == 2 ? 128.0f : 1.0f;
  if (cap > 0) return {cap * kLog2E, q_scale * (call.args.scale * limbs) / cap, 0.0f};
  const float factor = q_scale * (call.args.scale * kLog2E * limbs);
  if (slope) return {1.0f, factor, -(*slope * kLog2E)};
  return {factor, 0.0f, 0.0f};
}

// before: how many tokens the first of the sixteen stands before the query
template <Bend kBend>
Lanes bent(Lanes x, const RowScale& scale, int64_t before) {
  if (kBend == Bend::kCap) return tanh(mul(x, set1(scale.inner)));
  if (kBend == Bend::kSlope) return fma(distances(before), set1(scale.slope), mul(x, set1(scale.inner)));
  return x;
}

template <class Dots>
void quantise_queries(const Call& call, const Unit& unit, Work<Dots>& work) {
  const int64_t depth = query_depth(call.layout);
  for (int64_t row = 0; row < unit.rows; ++row) {
    int8_t* q = work.q + row * 2 * depth;
    float scale;
    quantise_two_limbs(query(call, unit, row), call.layout.head_dim, q, depth, &scale);
    work.bias[row] = query_bias(call.layout, q);
    work.scales[row] = row_scale(call, scale, of_head(call.args.slopes, call, unit, row));
    work.positions[row] = call.position(unit.chunk, unit.row + row);
  }
}

Sight sight_of(const Call& call, int64_t chunk, int64_t position, int64_t start) {
  const auto within = [&](int64_t token) { return static_cast<int>(std::clamp<int64_t>(token - start, 0, kSegment)); };
  return {within(call.first_visible(position)), within(call.end_visible(chunk, position))};
}

// Where a cut unit's row keeps its part of a segment. Rows that do not see the segment have a weight of -1 there.
float* part_at(const Call& call, const Unit& unit, int64_t segment, int64_t row) {
  return unit.parts + ((segment - unit.parts_first) * unit.rows + row) * part_floats(call.layout);
}

// One tile of rows over one segment, in three steps. Each goes over all rows before the next begins, so that the
// reductions which end a row's step do not hold up the next row.
template <class Dots>
class TileOverSegment {
 public:
  // weights: 256 bytes per row, of this tile's own
  TileOverSegment(const Call& call, const Unit& unit, Work<Dots>& work, const Segment& segment, int64_t number,
                  const Tile& tile, uint8_t* weights)
      : call_(call), layout_(call.layout), unit_(unit), work_(work), number_(number), tile_(tile), weights_(weights),
        segment_(narrowed(segment, tile.first - number * kSegment, tile.last - number * kSegment)) {
    const int64_t start = number * kSegment, *positions = work.positions + tile.row;
    // Most tiles see all of most segments: their first row does, and so does their last, and the others lie between.
    const auto sight = [&](int r) { return sight_of(call, unit.chunk, positions[r], start); };
    masked_ = !sight(0).all() || !sight(tile.rows - 1).all();
    for (int r = 0; r < tile.rows; ++r) sight_[r] = masked_ ? sight(r) : Sight{0, kSegment};
  }

  void find_logits() {
    if (call_.args.softcap > 0) find_logits<Bend::kCap>();
    else if (call_.args.slopes) find_logits<Bend::kSlope>();
    else find_logits<Bend::kNone>();
  }
  void find_weights() { masked_ ? find_weights<true>() : find_weights<false>(); }
  void join() { unit_.parts ? write_parts() : join_rows(); }

 private:
  const float* key_scales(int group) const {
    return reinterpret_cast<const float*>(segment_.group[group] + layout_.scales_at);
  }
  const float* value_scales(int group) const { return key_scales(group) + kGroupTokens; }

  template <Bend kBend>
  void find_logits() {
    masked_ ? find_logits<true, kBend>() : find_logits<false, kBend>();
  }

  template <bool kMasked, Bend kBend>
  void find_logits() {
    alignas(64) float most[kTileRows][kLanes];
    for (int r = 0; r < tile_.rows; ++r) store(most[r], set1(-FLT_MAX));
    const auto of_group = [&, logits = work_.logits, row_scales = work_.scales + tile_.row,
                           positions = work_.positions + tile_.row](int g) {
      const int64_t first = number_ * kSegment + 16 * g;
      return
          [&, g, first, row_scales, positions, scales = load(key_scales(g)), to = logits + 16 * g](int r, Ints total) {
            Lanes x = bent<kBend>(mul(to_float(total), scales), row_scales[r], positions[r] - first);
            if (kMasked) x = between(sight_[r].from - 16 * g, sight_[r].to - 16 * g, x, set1(-FLT_MAX));
            store(to + r * kSegment, x);
            store(most[r], max(load(most[r]), x));
          };
    };
    work_.dots.score(segment_, tile_.row, tile_.rows, of_group);
    for (int r = 0; r < tile_.rows; ++r)
      top_[r] = nearest_even(reduce_max(load(most[r])) * work_.scales[tile_.row + r].factor);
  }

  template <bool kMasked>
  void find_weights() {
    alignas(64) float most[kTileRows][kLanes];
    for (int r = 0; r < tile_.rows; ++r) {
      Lanes largest = zero();
      work_.dots.between();
      const auto scale = [&](int at, Lanes p) { return mul(p, load(value_scales(at / 16))); };
      const float factor = work_.scales[tile_.row + r].factor;
      float* logits = work_.logits + r * kSegment;
      store(sums_[r], probabilities<kMasked>(logits, factor, top_[r], sight_[r], scale, largest));
      store(most[r], largest);
    }
    for (int r = 0; r < tile_.rows; ++r) {
      const float w_max = reduce_max(load(most[r]));
      weight_[r] = w_max * (1.0f / kProbabilityMax);
      const float inverse = w_max > 1e-30f ? kProbabilityMax / w_max : 0.0f;
      Dots::store_weights(work_.logits + r * kSegment, inverse, weights_ + r * 2 * kSegment);
    }
  }

  void join_rows() {
    Join by[kTileRows];
    for (int r = 0; r < tile_.rows; ++r)
      if (!sight_[r].none())
        by[r] = attention::join(work_.part(tile_.row + r, layout_.value_dim), top_[r], load(sums_[r]), weight_[r]);
    const int64_t stride = layout_.value_dim;
    work_.dots.weigh(segment_, weights_, tile_.rows, [&, outs = work_.outs + tile_.row * stride](int64_t dim) {
      return [&, stride, to = outs + dim](int r, Lanes out) {
        if (!sight_[r].none()) join_out(to + r * stride, by[r], out);
      };
    });
  }

  void write_parts() {
    float* parts = part_at(call_, unit_, number_, tile_.row);
    const int64_t stride = part_floats(layout_);
    for (int r = 0; r < tile_.rows; ++r) {
      parts[r * stride] = top_[r];
      parts[r * stride + 1] = sight_[r].none() ? -1.0f : weight_[r];
      store(parts + r * stride + kLanes, load(sums_[r]));
    }
    work_.dots.weigh(segment_, weights_, tile_.rows, [=](int64_t dim) {
      return [=, to = parts + 2 * kLanes + dim](int r, Lanes out) { store(to + r * stride, out); };
    });
  }

  const Call& call_;
  const KvLayout& layout_;
  const Unit& unit_;
  Work<Dots>& work_;
  const int64_t number_;
  const Tile tile_;
  uint8_t* const weights_;
  const Segment segment_;
  Sight sight_[kTileRows];
  bool masked_;
  float top_[kTileRows], weight_[kTileRows];
  alignas(64) float sums_[kTileRows][kLanes];
};

// A tile's products of weights and values wait until the next tile's logits are under way: tiles (of AMX) and lanes
// then have something to do for each other's waiting time.
template <class Dots>
void attend_segment(const Call& call, const Unit& unit, Work<Dots>& work, const Segment& segment, int64_t number) {
  std::optional<TileOverSegment<Dots>> tiles[2];
  int turn = 0;
  for (int64_t row = 0; row < unit.rows; row += kTileRows) {
    const Tile tile = tile_at(call, unit, work.positions, row);
    if (tile.last <= number * kSegment || tile.first >= (number + 1) * kSegment) continue;
    auto &now = tiles[turn], &before = tiles[1 - turn];
    now.emplace(call, unit, work, segment, number, tile, work.weights + turn * kTileRows * 2 * kSegment);
    now->find_logits();
    if (before) before->join();
    now->find_weights();
    turn = 1 - turn;
  }
  if (tiles[1 - turn]) tiles[1 - turn]->join();
}

// after: the unit whose memory is asked for in the end, since this thread will probably take it next
template <class Dots>
void attend(const Call& call, const Unit& unit, const Unit& after, Work<Dots>& work) {
  const int64_t value_dim = call.layout.value_dim;
  quantise_queries(call, unit, work);
  work.dots.begin({work.q, work.bias}, unit.rows);
  if (!unit.parts)
    for (int64_t row = 0; row < unit.rows; ++row) begin(work.part(row, value_dim), value_dim);
  const int64_t first = call.first_visible(work.positions[0]);
  const int64_t last = call.end_visible(unit.chunk, work.positions[unit.rows - 1]);
  Segment next = first_groups(call, unit);
  for (int64_t number = unit.first; number < unit.last; ++number) {
    const Segment segment = next;
    next = number + 1 < unit.last ? find_groups(call, unit, number + 1, first, last) : first_groups(call, after);
    work.dots.visit(segment, next);
    attend_segment(call, unit, work, segment, number);
  }
  if (!unit.parts)
    for (int64_t row = 0; row < unit.rows; ++row)
      finish(work.part(row, value_dim), of_head(call.args.sinks, call, unit, row), value_dim, result(call, unit, row));
}

void merge_parts(const Call& call, const Unit& unit, int64_t row, float* memory) {
  const KvLayout& layout = call.layout;
  const Part whole{memory, memory + kLanes, memory + 2 * kLanes};
  begin(whole, layout.value_dim);
  for (int64_t segment = unit.first; segment < unit.last; ++segment) {
    const float* part = part_at(call, unit, segment, row);
    if (part[1] < 0) continue;
    const Join by = join(whole, part[0], load(part + kLanes), part[1]);
    for (int64_t dim = 0; dim < layout.value_dim; dim += kLanes)
      join_out(whole.out + dim, by, load(part + 2 * kLanes + dim));
  }
  finish(whole, of_head(call.args.sinks, call, unit, row), layout.value_dim, result(call, unit, row));
}

// ---- sharing out ----

// Few enough rows for every thread to have work, enough to reuse a segment's keys while they are in the cache.
int64_t rows_per_unit(const Call& call, int64_t threads) {
  const int64_t all = call.args.starts[call.args.chunks] - call.args.starts[0];
  const int64_t even = divide_up(all * call.args.heads, kUnitsPerThread * threads);
  return std::clamp(divide_up(even, kTileRows) * kTileRows, int64_t(kTileRows), kMaxUnitRows);
}

std::vector<Unit> make_units(const Call& call, int64_t unit_rows) {
  std::vector<Unit> units;
  for (int64_t chunk = 0; chunk < call.args.chunks; ++chunk) {
    const int64_t rows = call.chunk_tokens(chunk) * call.group_heads;
    for (int64_t row = 0; row < rows; row += unit_rows)
      for (int64_t kv_head = 0; kv_head < call.args.cache.kv_heads; ++kv_head) {
        const int64_t count = std::min(unit_rows, rows - row);
        const int64_t first = call.first_visible(call.position(chunk, row)) / kSegment;
        const int64_t last = (call.end_visible(chunk, call.position(chunk, row + count - 1)) - 1) / kSegment + 1;
        units.push_back({chunk, kv_head, row, count, first, last, nullptr, first});
      }
  }
  // The pool hands out the highest numbers first: the long ones.
  std::sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) { return cost(a) < cost(b); });
  return units;
}

// How many pieces by segments a unit of one tile is cut into. Those that are claimed last are cut, so that threads of
// different speed end together; all are if there are few.
int64_t num_cuts(const std::vector<Unit>& units, int64_t index, int64_t threads) {
  const Unit& unit = units[index];
  const int64_t count = units.size(), last = count < 2 * threads ? count : threads;
  if (threads == 1 || index >= last || unit.rows > kTileRows) return 1;
  const int64_t wanted = std::max(kTailCuts, divide_up(kUnitsPerThread * threads, count));
  return std::clamp((unit.last - unit.first) / kMinCutSegments, int64_t(1), wanted);
}

struct Plan {
  std::vector<Unit> units;  // what tasks compute
  std::vector<Unit> cut;    // what is merged afterwards
};

Plan make_plan(Context& context, const Call& call) {
  const int64_t threads = context.pool.size();
  Plan plan;
  const std::vector<Unit> whole = make_units(call, rows_per_unit(call, threads));
  const auto floats_of = [&](const Unit& unit) {
    return (unit.last - unit.first) * unit.rows * part_floats(call.layout);
  };
  const int64_t count = whole.size();
  int64_t floats = 0;
  for (int64_t index = 0; index < count; ++index)
    if (num_cuts(whole, index, threads) > 1) floats += floats_of(whole[index]);
  float* parts = context.shared.get<float>(floats);
  for (int64_t index = 0; index < count; ++index) {
    Unit unit = whole[index];
    const int64_t cuts = num_cuts(whole, index, threads), segments = unit.last - unit.first;
    if (cuts > 1) {
      unit.parts = parts;
      parts += floats_of(unit);
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
void attend_on(Context& context, int thread, const Call& call, const Unit& unit, const Unit& after) {
  Work<Dots> work(call.layout, kMaxUnitRows, Carve(context.scratch[thread].get<uint8_t>(1)));
  attend(call, unit, after, work);
}

void attend_integers(Context& context, const Call& call) {
  const Plan plan = make_plan(context, call);
  int64_t bytes = Work<VectorDots>::bytes(call.layout, kMaxUnitRows);
  bytes = std::max(bytes, Work<ManyRowDots>::bytes(call.layout, kMaxUnitRows));
  reserve_scratch<uint8_t>(context, bytes);
  context.pool.run(plan.units.size(), [&](int64_t task, int thread) {
    const Unit &unit = plan.units[task],
               &after = plan.units[context.pool.probably_next(task, plan.units.size(), thread)];
    if (unit.rows >= kManyRows) return attend_on<ManyRowDots>(context, thread, call, unit, after);
    attend_on<VectorDots>(context, thread, call, unit, after);
  });
  context.pool.run(plan.cut.size() * kTileRows, [&](int64_t task, int thread) {
    const Unit& unit = plan.cut[task / kTileRows];
    if (task % kTileRows < unit.rows) merge_parts(call, unit, task % kTileRows, context.scratch[thread].get<float>(1));
  });
}

// ---- checks ----

Error check_chunk(const Call& call, int64_t chunk) {
  const sf_attention_args& a = call.args;
  const int64_t tokens = call.chunk_tokens(chunk), length = a.lengths[chunk];
  SF_REQUIRE(tokens >= 0 && length >= tokens && length <= a.table_stride * a.cache.block_size, kBadShape);
  if (!tokens) return kOk;
  const int64_t* table = a.block_table + chunk * a.table_stride;
  const int64_t first = call.first_visible(length - tokens) / a.cache.block_size,
                last = (length - 1) / a.cache.block_size;
  for (int64_t i = first; i <= last; ++i) SF_REQUIRE(table[i] >= 0 && table[i] < a.cache.num_blocks, kOutOfRange);
  return kOk;
}

Error check(const sf_attention_args& a) {
  if (const Error error = check_kv(a.cache)) return error;
  SF_REQUIRE(a.chunks >= 0 && a.heads > 0 && a.heads % a.cache.kv_heads == 0, kBadShape);
  SF_REQUIRE(a.q_stride >= a.heads * a.cache.head_dim && a.y_stride >= a.heads * a.cache.value_dim, kBadShape);
  SF_REQUIRE(a.table_stride >= 0, kBadShape);
  SF_REQUIRE(a.window >= -kMaxWindow && a.scale >= 0 && a.softcap >= 0 && !(a.softcap > 0 && a.slopes), kBadOption);
  SF_REQUIRE(a.fixed == 0 || (a.fixed == 1 && a.window > 0), kBadOption);
  SF_REQUIRE(a.chunks == 0 || (a.q && a.y && a.starts && a.lengths && a.block_table), kNullPointer);
  if (a.chunks) SF_REQUIRE(a.starts[0] >= 0, kBadShape);
  const Call call(a);
  for (int64_t chunk = 0; chunk < a.chunks; ++chunk)
    if (const Error error = check_chunk(call, chunk)) return error;
  return kOk;
}

}  // namespace
}  // namespace attention

Error op_attention(Context& context, sf_attention_args& args) {
  if (const Error error = attention::check(args)) return error;
  if (args.chunks == 0) return kOk;
  const attention::Call call(args);
  if (args.cache.form == kBfloat16) attention::attend_floats(context, call);
  else attention::attend_integers(context, call);
  return kOk;
}

}  // namespace sf
