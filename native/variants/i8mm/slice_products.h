// The products of neon/slices.h by smmla, which multiplies two rows of eight bytes by two others: both limbs of a row
// by two outputs, eight columns deep.
#pragma once
#include "dot.h"

namespace sf::slices {

inline constexpr int kStep = 2;
inline constexpr int kSliceRows = 6;  // by 4 sums: 24 registers

// Four outputs by four columns, twice, to two outputs by eight columns, twice.
inline void interleave(int8x16_t (&parts)[kStep]) {
  const int32x4_t first = vreinterpretq_s32_s8(parts[0]), second = vreinterpretq_s32_s8(parts[1]);
  parts[0] = vreinterpretq_s8_s32(vzip1q_s32(first, second));
  parts[1] = vreinterpretq_s8_s32(vzip2q_s32(first, second));
}

// sums[register][limb of the row][output of two] += weights . row
[[gnu::always_inline]] inline void add_products(int32x4_t (&sums)[4], const int8x16_t (&weights)[4],
                                                const int8_t* row) {
  const int8x16_t limbs = vld1q_s8(row);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) sums[i] = vmmlaq_s32(sums[i], limbs, weights[i]);
}

// Of four outputs, from two registers' sums.
inline int32x4_t quad_sums(const int32_t* sums, int row_limb) {
  return vcombine_s32(vld1_s32(sums + 2 * row_limb), vld1_s32(sums + 4 + 2 * row_limb));
}

}  // namespace sf::slices
