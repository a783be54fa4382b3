// One token of one row of logits x. The formulas, the same in every variant:
//   max     = the largest logit
//   s       = (x - max) * (1 / temperature)
//   filters keep ids by rank (larger logit first, ties to the lower id):
//   top_k:  the first k
//   top_p:  weight = nearest_even(e^s * 2^30), an integer, so that sums have no order; of what top_k kept, the shortest
//           run of first ranks whose weights reach top_p * (their total), the product taken in double
//   min_p:  of what top_p kept, those with s >= log(min_p)
//   token   = the largest s + noise(seed, position, id) of what is kept, ties to the lower id
//   logprob = (x[token] - max) - log(sum of e^(x - max)), of all logits, before temperature and filters
// Ids are taken in blocks of 64. Most of the work is skipped by the blocks' largest logits, which can change nothing:
// a block is left out only when none of its ids could be kept or win.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>

#include "core/ops.h"
#include "core/sizes.h"
#include "kernels/philox.h"
#include "kernels/rank.h"
#include "kernels/softmax.h"

namespace sf::sampling {

inline constexpr int64_t kBlock = 64;
inline constexpr float kLeastTemperature = 1e-5f;  // below it: greedy
inline constexpr float kMostTemperature = 1e5f;    // above it: refused

inline int64_t num_blocks(int64_t vocab) { return divide_up(vocab, kBlock); }

// Where a row's work happens; one per thread.
struct SampleScratch {
  float* block_most;  // [blocks] the largest logit of each block
  float* ranked;      // [blocks, and room to a multiple of 16]
  uint64_t* keys;     // [vocab]
};

// The ids kept by rank: those above value, and those equal to it up to id `last`. `below` is the float next below
// value.
struct Cut {
  float value = kMinusInfinity, below = kMinusInfinity;
  int64_t last = -1;
};

struct Row {
  const float* x;
  int64_t vocab;
  float most, inverse;  // max and 1 / temperature
  SampleScratch scratch;

  int64_t blocks() const { return num_blocks(vocab); }
  float scaled(float value) const { return (value - most) * inverse; }
  Lanes scaled(Lanes values) const { return mul(sub(values, set1(most)), set1(inverse)); }
  Lanes at(int64_t id) const { return values_at(x, vocab, id); }

  // Of sixteen ids from `id`: those that the cut keeps hold their value, the others -infinity.
  Lanes kept(int64_t id, const Cut& cut) const {
    const int64_t head = std::clamp<int64_t>(cut.last + 1 - id, 0, kLanes);
    const Lanes bound = select(first(static_cast<int>(head)), set1(cut.below), set1(cut.value));
    const Lanes values = at(id);
    return select(less(bound, values), values, set1(kMinusInfinity));
  }
};

// Fills block_most and most.
inline void find_most(Row& row) {
  Lanes most = set1(kMinusInfinity);
  for (int64_t block = 0, id = 0; id < row.vocab; ++block, id += kBlock) {
    const Lanes here = max(max(row.at(id), row.at(id + 16)), max(row.at(id + 32), row.at(id + 48)));
    row.scratch.block_most[block] = reduce_max(here);
    most = max(most, here);
  }
  row.most = reduce_max(most);
}

inline bool finite(float x) { return std::fabs(x) < kInfinity; }

inline int64_t first_of(const float* x, int64_t count, float value) { return std::find(x, x + count, value) - x; }

// The lowest id of the largest logit.
inline int64_t greedy(const Row& row) {
  const int64_t start = first_of(row.scratch.block_most, row.blocks(), row.most) * kBlock;
  return start + first_of(row.x + start, row.vocab - start, row.most);
}

// Keys of at least `count` first ranks (all of the ids not below a bound that is no higher than rank `count`'s logit).
inline int64_t gather_first(const Row& row, int64_t count) {
  const SampleScratch& s = row.scratch;
  float bound = kMinusInfinity;
  if (count <= row.blocks()) {
    std::copy_n(s.block_most, row.blocks(), s.ranked);
    std::nth_element(s.ranked, s.ranked + count - 1, s.ranked + row.blocks(), std::greater<float>());
    bound = s.ranked[count - 1];
  }
  int64_t found = 0;
  for (int64_t block = 0; block < row.blocks(); ++block) {
    if (s.block_most[block] < bound) continue;
    for (int64_t id = block * kBlock; id < std::min((block + 1) * kBlock, row.vocab); ++id)
      if (!(row.x[id] < bound)) s.keys[found++] = rank_key(row.x[id], id);
  }
  return found;
}

inline Cut cut_at(uint64_t key) {
  const float value = ranked_value(key);
  return {value, std::nextafterf(value, kMinusInfinity), ranked_id(key)};
}

inline Cut top_k_cut(const Row& row, int64_t k) {
  if (k <= 0 || k >= row.vocab) return {};
  uint64_t* keys = row.scratch.keys;
  const int64_t found = gather_first(row, k);
  std::nth_element(keys, keys + k - 1, keys + found);
  return cut_at(keys[k - 1]);
}

// ---- top_p: a histogram of the weights by s, then the ranks inside the one step where the sum is reached ----

inline constexpr int kStepsPerUnit = 64;
inline constexpr float kLeastScaled = -22.0f;  // e^-22 * 2^30 rounds to 0
inline constexpr int kSteps = 22 * kStepsPerUnit + 1;

inline Ints weight_of(Lanes scaled) { return to_int(mul(exp(scaled), set1(0x1p30f))); }
// Never falls as the rank goes on.
inline Ints step_of(Lanes scaled) {
  return to_int(mul(max(scaled, set1(kLeastScaled)), set1(-static_cast<float>(kStepsPerUnit))));
}

inline bool weightless(const Row& row, int64_t block, const Cut& cut) {
  const float most = row.scratch.block_most[block];
  return most < cut.value || row.scaled(most) < kLeastScaled;
}

// s of sixteen ids, -infinity for what the cut leaves out.
inline Lanes kept_scaled(const Row& row, int64_t id, const Cut& cut) { return row.scaled(row.kept(id, cut)); }

// Weights by step, complete down to `floor`; below it some may be counted in the total alone.
struct Histogram {
  int64_t total = 0;
  int64_t sums[2][kSteps] = {};  // neighbours add to different halves, so that equal steps do not wait for each other

  int64_t sum(int step) const { return sums[0][step] + sums[1][step]; }

  void add_steps(const Row& row, int64_t block, const Cut& cut) {
    for (int64_t id = block * kBlock; id < (block + 1) * kBlock; id += kLanes) {
      const Lanes scaled = kept_scaled(row, id, cut);
      int32_t weights[kLanes], steps[kLanes];
      storei(weights, weight_of(scaled));
      storei(steps, step_of(scaled));
      for (int i = 0; i < kLanes; ++i) sums[i & 1][steps[i]] += weights[i];
    }
  }

  void add_total(const Row& row, int64_t block, const Cut& cut) {
    Ints sum = set1i(0);  // of four weights below floor each: far from overflow
    for (int64_t id = block * kBlock; id < (block + 1) * kBlock; id += kLanes)
      sum = addi(sum, weight_of(kept_scaled(row, id, cut)));
    int32_t lanes[kLanes];
    storei(lanes, sum);
    for (const int32_t lane : lanes) total += lane;
  }
};

inline Histogram weigh(const Row& row, const Cut& cut, float floor) {
  Histogram histogram;
  for (int64_t block = 0; block < row.blocks(); ++block) {
    if (weightless(row, block, cut)) continue;
    if (row.scaled(row.scratch.block_most[block]) < floor) {
      histogram.add_total(row, block, cut);
    } else {
      histogram.add_steps(row, block, cut);
    }
  }
  for (int step = 0; step < kSteps; ++step) histogram.total += histogram.sum(step);
  return histogram;
}

struct Reached {
  int step;
  int64_t need;  // of the weights in that step
};

// The step in which the weights reach top_p of their total; step kSteps if that lies below the histogram's floor.
inline Reached find_step(const Histogram& histogram, float top_p, float floor) {
  const double share = static_cast<double>(std::max(top_p, 0.0f)) * static_cast<double>(histogram.total);
  int64_t need = std::max<int64_t>(static_cast<int64_t>(std::ceil(share)), 1);
  const int complete = static_cast<int>(-floor) * kStepsPerUnit;
  for (int step = 0; step < complete; ++step) {
    if (need <= histogram.sum(step)) return {step, need};
    need -= histogram.sum(step);
  }
  return {kSteps, need};
}

inline Reached reach_share(const Row& row, const Cut& cut, float top_p) {
  constexpr float kUsualFloor = -8.0f;  // what the most likely ids come to, in all but flat distributions
  const Reached usual = find_step(weigh(row, cut, kUsualFloor), top_p, kUsualFloor);
  return usual.step < kSteps ? usual : find_step(weigh(row, cut, kLeastScaled), top_p, kLeastScaled);
}

// Keys of what the cut keeps in a step that has weight (so that no id left out, nor beyond the end, can be in it).
inline int64_t gather_step(const Row& row, const Cut& cut, int step) {
  int64_t found = 0;
  const Lanes below = set1(static_cast<float>(step) - 0.5f), above = set1(static_cast<float>(step) + 0.5f);
  const float floor = static_cast<float>(step + 1) / -kStepsPerUnit;
  for (int64_t block = 0; block < row.blocks(); ++block) {
    if (weightless(row, block, cut) || row.scaled(row.scratch.block_most[block]) < floor) continue;
    for (int64_t id = block * kBlock; id < (block + 1) * kBlock; id += kLanes) {
      const Lanes steps = to_float(step_of(kept_scaled(row, id, cut)));
      for (uint32_t bits = mask_bits(less(below, steps)) & mask_bits(less(steps, above)); bits; bits &= bits - 1) {
        const int64_t here = id + std::countr_zero(bits);
        row.scratch.keys[found++] = rank_key(row.x[here], here);
      }
    }
  }
  return found;
}

// The first of the sorted keys at which the weights reach `need`.
inline int64_t reach(const Row& row, const uint64_t* keys, int64_t count, int64_t need) {
  for (int64_t start = 0; start < count; start += kLanes) {
    float values[kLanes];
    int32_t weights[kLanes];
    const auto n = static_cast<int>(std::min<int64_t>(kLanes, count - start));
    for (int i = 0; i < n; ++i) values[i] = ranked_value(keys[start + i]);
    storei(weights, weight_of(row.scaled(load_n(values, n))));
    for (int i = 0; i < n; ++i)
      if ((need -= weights[i]) <= 0) return start + i;
  }
  return count - 1;
}

inline Cut top_p_cut(const Row& row, float top_p, const Cut& cut) {
  if (!(top_p < 1.0f)) return cut;
  const Reached reached = reach_share(row, cut, top_p);
  uint64_t* keys = row.scratch.keys;
  const int64_t found = gather_step(row, cut, reached.step);
  std::sort(keys, keys + found);
  return cut_at(keys[reach(row, keys, found, reached.need)]);
}

// ---- the noisy argmax ----

// What one row's noise and filters come to.
struct Draw {
  uint64_t seed;
  int64_t position;
  Cut cut;
  float least;  // of s
};

// best's chance is e^-score, as far as float goes.
struct Best {
  float score = kMinusInfinity, chance = kInfinity;
  int64_t id = 0;
};

// Noise of u is at most -log(1 - u), since -log(u) >= 1 - u. So an id can only win if 1 - u <= e^(s - best score): the
// block's e^s (its chance) decides without a logarithm. The margin covers the rounding of noise and score many times
// over.
inline constexpr float kMargin = 1.01f;
inline constexpr float kLeastGap = 0x1p-24f;  // the least 1 - u there is

inline float least_gap(const Ints (&words)[4]) {
  const Lanes most = max(max(uniform(words[0]), uniform(words[1])), max(uniform(words[2]), uniform(words[3])));
  return 1.0f - reduce_max(most);
}

// Takes the best of a block's 64 ids if it beats the best so far, or ties with it and has the lower id.
inline void try_block(const Row& row, int64_t block, const Draw& draw, float chance, Best& best) {
  const float gap = chance * best.chance * kMargin;
  if (gap < kLeastGap) return;
  Ints words[4];
  noise_words(draw.seed, draw.position, block * kBlock, words);
  if (gap < least_gap(words)) return;
  float scores[kBlock];
  Lanes most = set1(kMinusInfinity);
  for (int i = 0; i < 4; ++i) {
    const Lanes scaled = row.scaled(row.kept(block * kBlock + i * kLanes, draw.cut));
    const Lanes score = select(less(scaled, set1(draw.least)), set1(kMinusInfinity), add(scaled, gumbel(words[i])));
    store(scores + i * kLanes, score);
    most = max(most, score);
  }
  const float score = reduce_max(most);
  if (score < best.score || score == kMinusInfinity) return;
  const int64_t id = block * kBlock + first_of(scores, kBlock, score);
  if (score > best.score || id < best.id) best = {score, first_lane(exp(set1(-score))), id};
}

inline int64_t noisy(const Row& row, const Draw& draw) {
  const float* block_most = row.scratch.block_most;
  float* chances = row.scratch.ranked;
  for (int64_t i = 0; i < row.blocks(); i += kLanes)
    store(chances + i, exp(row.scaled(values_at(block_most, row.blocks(), i))));
  // The most likely block first: its score rules out most of the others.
  const int64_t favourite = first_of(block_most, row.blocks(), row.most);
  Best best;
  try_block(row, favourite, draw, 1.0f, best);
  for (int64_t block = 0; block < row.blocks(); ++block)
    if (block != favourite && block_most[block] >= draw.cut.value && row.scaled(block_most[block]) >= draw.least)
      try_block(row, block, draw, chances[block], best);
  return best.id;
}

inline int64_t choose(Row& row, const sf_sample_args& args, int64_t r) {
  const float temperature = args.temperature[r];
  if (temperature < kLeastTemperature) return greedy(row);
  row.inverse = 1.0f / temperature;
  const Cut cut = top_p_cut(row, args.top_p[r], top_k_cut(row, args.top_k[r]));
  const float min_p = args.min_p[r];
  const float least = min_p > 0.0f ? log_of(std::min(min_p, 1.0f)) : kMinusInfinity;
  return noisy(row, {args.seeds[r], args.positions[r], cut, least});
}

}  // namespace sf::sampling
