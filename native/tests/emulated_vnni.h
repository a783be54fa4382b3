// VNNI's products by older instructions, with the same bits: `-DSUREFOOT_EMULATE_VNNI=ON` compiles every variant with
// this header first, so that a machine without VNNI compares those variants' kernels with the oracle.
#pragma once
#if defined(__AVX2__)
#include <immintrin.h>

// sum + four products of an unsigned and a signed byte, as the pairs 0 and 2, 1 and 3. None saturates.
inline __m256i emulated_dpbusd(__m256i sum, __m256i a, __m256i b) {
  const __m256i even = _mm256_and_si256(a, _mm256_set1_epi16(0xFF)), odd = _mm256_srli_epi16(a, 8);
  const __m256i even_b = _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8), odd_b = _mm256_srai_epi16(b, 8);
  return _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_madd_epi16(even, even_b), _mm256_madd_epi16(odd, odd_b)));
}
inline __m256i emulated_dpwssd(__m256i sum, __m256i a, __m256i b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
#define _mm256_dpbusd_avx_epi32 emulated_dpbusd
#define _mm256_dpwssd_avx_epi32 emulated_dpwssd
#endif

#if defined(__AVX512BW__)
inline __m512i emulated_dpbusd(__m512i sum, __m512i a, __m512i b) {
  const __m512i even = _mm512_and_si512(a, _mm512_set1_epi16(0xFF)), odd = _mm512_srli_epi16(a, 8);
  const __m512i even_b = _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 8), odd_b = _mm512_srai_epi16(b, 8);
  return _mm512_add_epi32(sum, _mm512_add_epi32(_mm512_madd_epi16(even, even_b), _mm512_madd_epi16(odd, odd_b)));
}
inline __m512i emulated_dpwssd(__m512i sum, __m512i a, __m512i b) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
}
#define _mm512_dpbusd_epi32 emulated_dpbusd
#define _mm512_dpwssd_epi32 emulated_dpwssd
#endif
