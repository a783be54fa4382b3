// Lines of 32 words or 64 bytes in one register. Names and meaning are those of avx2/int16_lines.h.
#pragma once
#include "attention_dot.h"

namespace sf::attention {

inline constexpr int kWordBlockRows = 8;

inline Ints dot_words(Ints a, Ints b) { return {_mm512_madd_epi16(a.v, b.v)}; }
inline Ints dot_bytes(Ints a, Ints b) {
  return {_mm512_madd_epi16(_mm512_maddubs_epi16(a.v, b.v), _mm512_set1_epi16(1))};
}

inline Ints even_bytes(Ints bytes) { return {_mm512_srai_epi16(_mm512_slli_epi16(bytes.v, 8), 8)}; }
inline Ints odd_bytes(Ints bytes) { return {_mm512_srai_epi16(bytes.v, 8)}; }

inline Ints add_words(Ints a, Ints b) { return {_mm512_add_epi16(a.v, b.v)}; }
template <int kBits>
inline Ints shift_words(Ints a) {
  return {_mm512_slli_epi16(a.v, kBits)};
}

inline void store_signed_pairs(int16_t* to, Ints p) {
  const __m256i order =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  const __m256i words = _mm512_cvtepi32_epi16(p.v);
  _mm256_store_si256(reinterpret_cast<__m256i*>(to),
                     _mm256_xor_si256(_mm256_shuffle_epi8(words, order), _mm256_set1_epi16(-32768)));
}

inline void keep(Ints& sum) { __asm__("" : "+v"(sum.v)); }

}  // namespace sf::attention
