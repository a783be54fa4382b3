// Gumbel noise as a function of (seed, position, token id): Philox4x32-10 of Salmon et al. (2011), sixteen counters at
// once.
//   key = (seed low, seed high), counter = (id / 4, position low, position high, kSampleStream), word id % 4
//   u = ((word >> 9) + 0.5) * 2^-23, exact and inside (0, 1);  noise = -log(-log(u))
#pragma once
#include "core/elementary.h"
#include "lanes.h"  // of the variant

namespace sf {

inline constexpr uint32_t kSampleStream = 0x73616D70;  // "samp"

// c becomes the generator's four words for the counter c, in every lane.
inline void philox(Ints (&c)[4], uint64_t key) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    Ints high0, low0, high1, low1;
    mul_wide(c[0], 0xD2511F53u, high0, low0);
    mul_wide(c[2], 0xCD9E8D57u, high1, low1);
    c[0] = xori(xori(high1, c[1]), set1i(static_cast<int32_t>(k0)));
    c[1] = low1;
    c[2] = xori(xori(high0, c[3]), set1i(static_cast<int32_t>(k1)));
    c[3] = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// The words of ids first to first + 63, sixteen in each of words; first is a multiple of 64.
// The counters are dealt to the lanes so that a transposition of quarters puts the words in id order.
inline void noise_words(uint64_t seed, int64_t position, int64_t first_id, Ints (&words)[4]) {
  alignas(64) static constexpr int32_t deal[kLanes] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
  const auto where = static_cast<uint64_t>(position);
  words[0] = addi(loadi(deal), set1i(static_cast<int32_t>(first_id / 4)));
  words[1] = set1i(static_cast<int32_t>(where));
  words[2] = set1i(static_cast<int32_t>(where >> 32));
  words[3] = set1i(static_cast<int32_t>(kSampleStream));
  philox(words, seed);
  transpose_quarters(words);
}

inline Lanes uniform(Ints words) { return mul(add(to_float(shr<9>(words)), set1(0.5f)), set1(0x1p-23f)); }
inline Lanes gumbel(Ints words) { return neg(log(neg(log(uniform(words))))); }

}  // namespace sf
