// Lines of 32 words or 64 bytes in sixteen lanes, for kernels/attention_words.h.
#pragma once
#include "attention_dot.h"

namespace sf::attention {

inline constexpr int kWordBlockRows = 4;

// Two words of both a lane. Four bytes of both a lane, the first's unsigned and below 128.
inline Ints dot_words(Ints a, Ints b) { return {_mm256_madd_epi16(a.lo, b.lo), _mm256_madd_epi16(a.hi, b.hi)}; }
inline Ints dot_bytes(Ints a, Ints b) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(_mm256_maddubs_epi16(a.lo, b.lo), ones),
          _mm256_madd_epi16(_mm256_maddubs_epi16(a.hi, b.hi), ones)};
}

// Signed bytes as words: the first and third of each lane, the second and fourth.
inline Ints even_bytes(Ints bytes) { return {even_bytes(bytes.lo), even_bytes(bytes.hi)}; }
inline Ints odd_bytes(Ints bytes) { return {odd_bytes(bytes.lo), odd_bytes(bytes.hi)}; }

inline Ints add_words(Ints a, Ints b) { return {_mm256_add_epi16(a.lo, b.lo), _mm256_add_epi16(a.hi, b.hi)}; }
template <int kBits>
inline Ints shift_words(Ints a) {
  return {_mm256_slli_epi16(a.lo, kBits), _mm256_slli_epi16(a.hi, kBits)};
}

// Sixteen numbers below 65536 less 32768, as words; of every four the first and third, then the second and fourth.
inline void store_signed_pairs(int16_t* to, Ints p) {
  const __m256i order =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(p.lo, p.hi), 0xD8);  // in order again
  _mm256_store_si256(reinterpret_cast<__m256i*>(to),
                     _mm256_xor_si256(_mm256_shuffle_epi8(words, order), _mm256_set1_epi16(-32768)));
}

// The compiler must not add up products in another order.
inline void keep(Ints& sum) { __asm__("" : "+x"(sum.lo), "+x"(sum.hi)); }

}  // namespace sf::attention
