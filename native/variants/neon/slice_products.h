// The products of slices.h by sdot: a register is four outputs by four columns.
#pragma once
#include "dot.h"

namespace sf::slices {

inline constexpr int kStep = 1;
inline constexpr int kSliceRows = 3;  // by 8 sums: 24 registers

inline void interleave(int8x16_t (&)[kStep]) {}

// sums[register][limb of the row] += weights . row
[[gnu::always_inline]] inline void add_products(int32x4_t (&sums)[8], const int8x16_t (&weights)[4],
                                                const int8_t* row) {
  const int32x4x2_t limbs = vld2q_dup_s32(reinterpret_cast<const int32_t*>(row));
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) sums[i] = vdotq_s32(sums[i], weights[i / 2], vreinterpretq_s8_s32(limbs.val[i % 2]));
}

// Of four outputs, from their eight sums.
inline int32x4_t quad_sums(const int32_t* sums, int row_limb) { return vld1q_s32(sums + 4 * row_limb); }

}  // namespace sf::slices
