// Attention over a bfloat16 cache: the reference form, in float throughout, one row after another.
#pragma once
#include "core/context.h"
#include "kernels/attention_call.h"

namespace sf::attention {

inline float dot_bfloat16(const float* q, const uint8_t* key, int64_t dims) {
  Lanes sum = zero();
  for (int64_t dim = 0; dim < dims; dim += kLanes)
    sum = fma(load(q + dim), load_bf16(reinterpret_cast<const uint16_t*>(key) + dim), sum);
  return reduce_add(sum);
}

// before: how many tokens the segment begins before the query
inline void attend_float_segment(const Call& call, const Segment& segment, const float* q, int from, int to,
                                 const float* slope, int64_t before, const Part& row, float* out) {
  const KvLayout& layout = call.layout;
  alignas(64) float p[kSegment] = {};
  for (int t = from; t < to; ++t)
    p[t] = dot_bfloat16(q, segment.group[t / 16] + t % 16 * layout.head_dim * 2, layout.head_dim);
  const float cap = call.args.softcap, scale = (cap > 0 ? cap : call.args.scale) * kLog2E;
  const float factor = slope ? 1.0f : scale;
  Lanes highest = set1(-FLT_MAX);
  for (int at = 0; at < kSegment; at += kLanes) {
    if (cap > 0) store(p + at, tanh(mul(load(p + at), set1(call.args.scale / cap))));
    if (slope) store(p + at, fma(distances(before - at), set1(-(*slope * kLog2E)), mul(load(p + at), set1(scale))));
    highest = max(highest, between(from - at, to - at, load(p + at), set1(-FLT_MAX)));
  }
  const float top = nearest_even(reduce_max(highest) * factor);
  Lanes most = zero();
  const Lanes sums = probabilities<true>(p, factor, top, {from, to}, [](int, Lanes x) { return x; }, most);
  for (int64_t dim = 0; dim < layout.value_dim; dim += kLanes) store(out + dim, zero());
  for (int t = from; t < to; ++t) {
    const uint8_t* value = segment.group[t / 16] + layout.values_at + t % 16 * layout.value_dim * 2;
    for (int64_t dim = 0; dim < layout.value_dim; dim += kLanes)
      store(out + dim, fma(set1(p[t]), load_bf16(reinterpret_cast<const uint16_t*>(value) + dim), load(out + dim)));
  }
  const Join by = join(row, top, sums, 1.0f);
  for (int64_t dim = 0; dim < layout.value_dim; dim += kLanes) join_out(row.out + dim, by, load(out + dim));
}

// unit: one row
inline void attend_float_row(const Call& call, const Unit& unit) {
  alignas(64) float state[2 * kLanes + kMaxHeadDim], out[kMaxHeadDim];
  const Part row{state, state + kLanes, state + 2 * kLanes};
  begin(row, call.layout.value_dim);
  const int64_t position = call.position(unit.chunk, unit.row), first = call.first_visible(position);
  const int64_t end = call.end_visible(unit.chunk, position);
  const float* slope = of_head(call.args.slopes, call, unit, 0);
  for (int64_t number = first / kSegment; number * kSegment < end; ++number) {
    const int64_t start = number * kSegment;
    const int from = static_cast<int>(std::max<int64_t>(first - start, 0));
    const int to = static_cast<int>(std::min<int64_t>(end - start, kSegment));
    const Segment segment = find_groups(call, unit, number, first, end);
    attend_float_segment(call, segment, query(call, unit, 0), from, to, slope, position - start, row, out);
  }
  finish(row, of_head(call.args.sinks, call, unit, 0), call.layout.value_dim, result(call, unit, 0));
}

inline void attend_floats(Context& context, const Call& call) {
  for (int64_t chunk = 0; chunk < call.args.chunks; ++chunk) {
    const int64_t rows = call.chunk_tokens(chunk) * call.group_heads;
    context.pool.run(rows * call.args.cache.kv_heads, [&](int64_t task, int) {
      attend_float_row(call, {chunk, task / rows, task % rows, 1, 0, 0, nullptr, 0});
    });
  }
}

}  // namespace sf::attention
