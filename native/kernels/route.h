// A row's experts and their weights. In order:
//   score:   softmax over all experts: e^(x - max) / sum;  sigmoid: 1 / (1 + e^-x);  softmax over the chosen: x itself
//   choice:  the k first by rank (larger first, ties to the lower id) of x, or of score + bias when there is a bias
//   groups:  if there are several, that rank is of the score (+ bias), and the k are chosen among the experts of the
//            groups that come first by rank of the sum of their one or two largest scores (+ bias)
//   weight:  the chosen's score; for softmax over the chosen e^(x - max of the chosen) / sum of the chosen
//   then, if asked, weight / (sum of the chosen weights + 1e-20), then weight * scale, and last weight * the
//   expert's own scale, if experts have one
// Sums are strided over the experts' ids or over the slots. Slot 0 is the first by rank.
#pragma once
#include <algorithm>

#include "core/ops.h"
#include "kernels/rank.h"
#include "kernels/softmax.h"

namespace sf::routing {

enum Scoring : int32_t { kSoftmaxAll = 0, kSoftmaxChosen = 1, kSigmoid = 2 };

// body(value) for sixteen at a time, in place of x in y.
template <class Body>
void map_values(const float* x, float* y, int64_t count, const Body& body) {
  for (int64_t i = 0; i < count; i += kLanes)
    store_n(y + i, body(values_at(x, count, i)), count - i < kLanes ? static_cast<int>(count - i) : kLanes);
}

inline float strided_sum(const float* x, int64_t count) {
  Lanes sums = zero();
  for (int64_t i = 0; i < count; i += kLanes)
    sums = add(sums, load_n(x + i, count - i < kLanes ? static_cast<int>(count - i) : kLanes));
  return reduce_add(sums);
}

inline void softmax(const float* x, float* y, int64_t count) {
  const Lanes most = set1(largest_value(x, count));
  map_values(x, y, count, [=](Lanes v) { return exp(sub(v, most)); });
  const Lanes sum = set1(strided_sum(y, count));
  map_values(y, y, count, [=](Lanes v) { return div(v, sum); });
}

inline void score_row(const float* x, float* scores, int64_t experts, int32_t scoring) {
  const Lanes one = set1(1.0f);
  if (scoring == kSoftmaxAll) return softmax(x, scores, experts);
  if (scoring == kSigmoid)
    return map_values(x, scores, experts, [=](Lanes v) { return div(one, add(one, exp(neg(v)))); });
  std::copy_n(x, experts, scores);
}

// Drops the keys of all groups but the best: they rank behind every expert. keys: `experts`; groups: room for `groups`.
inline void drop_groups(const sf_route_args& args, uint64_t* keys, uint64_t* groups) {
  const int64_t size = args.experts / args.groups;
  for (int64_t g = 0; g < args.groups; ++g) {
    uint64_t* group = keys + g * size;
    std::partial_sort(group, group + args.group_best, group + size);
    const float best = ranked_value(group[0]);
    groups[g] = rank_key(args.group_best == 2 ? best + ranked_value(group[1]) : best, g);
  }
  std::partial_sort(groups, groups + args.kept_groups, groups + args.groups);
  for (int64_t j = args.kept_groups; j < args.groups; ++j)
    std::fill_n(keys + ranked_id(groups[j]) * size, size, std::numeric_limits<uint64_t>::max());
}

// keys: room for `experts`; groups: room for `groups`; scores: room for `experts`.
inline void route_row(const sf_route_args& args, int64_t row, uint64_t* keys, uint64_t* groups, float* scores) {
  const float* x = args.logits + row * args.experts;
  int64_t* ids = args.ids + row * args.k;
  float* weights = args.weights + row * args.k;
  score_row(x, scores, args.experts, args.scoring);
  const float* ranked = args.bias || args.groups > 1 ? scores : x;
  for (int64_t e = 0; e < args.experts; ++e) keys[e] = rank_key(args.bias ? ranked[e] + args.bias[e] : ranked[e], e);
  if (args.groups > 1) drop_groups(args, keys, groups);
  std::partial_sort(keys, keys + args.k, keys + args.experts);
  for (int64_t j = 0; j < args.k; ++j) {
    ids[j] = ranked_id(keys[j]);
    weights[j] = scores[ids[j]];
  }
  if (args.scoring == kSoftmaxChosen) softmax(weights, weights, args.k);
  const float sum = args.normalise ? strided_sum(weights, args.k) + 1e-20f : 1.0f;
  for (int64_t j = 0; j < args.k; ++j) weights[j] = weights[j] / sum * args.scale;
  if (args.expert_scales)
    for (int64_t j = 0; j < args.k; ++j) weights[j] *= args.expert_scales[ids[j]];
}

}  // namespace sf::routing
