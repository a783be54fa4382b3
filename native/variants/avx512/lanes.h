// Sixteen lanes in one 512-bit register. The names and their meaning are those of portable/lanes.h.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace sf {

inline constexpr int kLanes = 16;
inline constexpr int kLaneRegisters = 32;

struct Lanes {
  __m512 v;
};
struct Ints {
  __m512i v;
};
struct Mask {
  __mmask16 v;
};
struct Doubles {
  __m512d lo, hi;  // lanes 0 to 7, 8 to 15
};

inline __mmask16 first_bits(int n) { return static_cast<__mmask16>((1u << n) - 1); }

inline Lanes zero() { return {_mm512_setzero_ps()}; }
inline Lanes set1(float x) { return {_mm512_set1_ps(x)}; }
inline Ints set1i(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Lanes a) { _mm512_storeu_ps(p, a.v); }
inline void store_past_cache(float* p, Lanes a) { _mm512_stream_ps(p, a.v); }
inline void settle() { _mm_sfence(); }
inline Lanes load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_bits(n), p)}; }
inline void store_n(float* p, Lanes a, int n) { _mm512_mask_storeu_ps(p, first_bits(n), a.v); }
inline Ints loadi(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
inline void storei(int32_t* p, Ints a) { _mm512_storeu_si512(p, a.v); }

inline Lanes add(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Lanes sub(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Lanes mul(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Lanes div(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Lanes sqrt(Lanes a) { return {_mm512_sqrt_ps(a.v)}; }
inline Lanes abs(Lanes a) { return {_mm512_abs_ps(a.v)}; }
inline Lanes neg(Lanes a) {
  return {_mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(INT32_MIN)))};
}
inline Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Lanes min(Lanes a, Lanes b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Lanes round_even(Lanes a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Ints to_int(Lanes a) { return {_mm512_cvtps_epi32(a.v)}; }
inline Lanes to_float(Ints a) { return {_mm512_cvtepi32_ps(a.v)}; }

inline __m256i first_eight(Ints a) { return _mm512_castsi512_si256(a.v); }
inline __m256i last_eight(Ints a) { return _mm512_extracti64x4_epi64(a.v, 1); }
inline Doubles to_double(Ints a) { return {_mm512_cvtepi32_pd(first_eight(a)), _mm512_cvtepi32_pd(last_eight(a))}; }
inline Doubles add_scaled(Doubles sum, Ints a, double factor) {
  const Doubles wide = to_double(a);
  const __m512d f = _mm512_set1_pd(factor);
  return {_mm512_fmadd_pd(wide.lo, f, sum.lo), _mm512_fmadd_pd(wide.hi, f, sum.hi)};
}
inline Lanes to_float(Doubles a) {
  return {_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(a.lo)), _mm512_cvtpd_ps(a.hi), 1)};
}

inline Ints addi(Ints a, Ints b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline Ints subi(Ints a, Ints b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline Ints muli(Ints a, Ints b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
inline Ints andi(Ints a, Ints b) { return {_mm512_and_si512(a.v, b.v)}; }
inline Ints xori(Ints a, Ints b) { return {_mm512_xor_si512(a.v, b.v)}; }
inline void mul_wide(Ints a, uint32_t b, Ints& high, Ints& low) {
  const __m512i factor = _mm512_set1_epi32(static_cast<int32_t>(b));
  const __m512i even = _mm512_mul_epu32(a.v, factor), odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), factor);
  high.v = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_CDAB);
  low.v = _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CDAB);
}
inline void transpose_quarters(Ints (&a)[4]) {
  const __m512i ab = _mm512_unpacklo_epi32(a[0].v, a[1].v), AB = _mm512_unpackhi_epi32(a[0].v, a[1].v);
  const __m512i cd = _mm512_unpacklo_epi32(a[2].v, a[3].v), CD = _mm512_unpackhi_epi32(a[2].v, a[3].v);
  a[0].v = _mm512_unpacklo_epi64(ab, cd);
  a[1].v = _mm512_unpackhi_epi64(ab, cd);
  a[2].v = _mm512_unpacklo_epi64(AB, CD);
  a[3].v = _mm512_unpackhi_epi64(AB, CD);
}
template <int N>
inline Ints shl(Ints a) {
  return {_mm512_slli_epi32(a.v, N)};
}
template <int N>
inline Ints shr(Ints a) {
  return {_mm512_srli_epi32(a.v, N)};
}
template <int N>
inline Ints sar(Ints a) {
  return {_mm512_srai_epi32(a.v, N)};
}
inline Lanes as_float(Ints a) { return {_mm512_castsi512_ps(a.v)}; }
inline Ints as_int(Lanes a) { return {_mm512_castps_si512(a.v)}; }

inline Mask less(Lanes a, Lanes b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline Mask first(int n) { return {first_bits(n)}; }
inline uint32_t mask_bits(Mask m) { return m.v; }
inline Lanes select(Mask m, Lanes yes, Lanes no) { return {_mm512_mask_blend_ps(m.v, no.v, yes.v)}; }

inline float reduce_add(Lanes a) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
inline float reduce_max(Lanes a) { return _mm512_reduce_max_ps(a.v); }
inline void store_bytes(int8_t* p, Ints a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
}
// The packs work within 128-bit quarters: what they leave as [quarter][a, b, c, d] is put in order here.
inline void store_packed(int8_t* p, __m512i ab, __m512i cd) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, _mm512_packs_epi16(ab, cd)));
}
inline void store_bytes(int8_t* p, Ints a, Ints b, Ints c, Ints d) {
  store_packed(p, _mm512_packs_epi32(a.v, b.v), _mm512_packs_epi32(c.v, d.v));
}
inline void store_two_limbs(int8_t* hi, int8_t* lo, Ints a, Ints b, Ints c, Ints d) {
  const __m512i ab = _mm512_packs_epi32(a.v, b.v), cd = _mm512_packs_epi32(c.v, d.v), half = _mm512_set1_epi16(64);
  const __m512i high_ab = _mm512_srai_epi16(_mm512_add_epi16(ab, half), 7);
  const __m512i high_cd = _mm512_srai_epi16(_mm512_add_epi16(cd, half), 7);
  store_packed(hi, high_ab, high_cd);
  store_packed(lo, _mm512_sub_epi16(ab, _mm512_slli_epi16(high_ab, 7)),
               _mm512_sub_epi16(cd, _mm512_slli_epi16(high_cd, 7)));
}
inline void store_limbs(uint8_t* hi, uint8_t* lo, Ints a, Ints b, Ints c, Ints d) {
  const __m512i low = _mm512_set1_epi16(0xFF);
  const __m512i x = _mm512_packus_epi32(a.v, b.v), y = _mm512_packus_epi32(c.v, d.v);
  _mm512_storeu_si512(hi, _mm512_packus_epi16(_mm512_srli_epi16(x, 8), _mm512_srli_epi16(y, 8)));
  _mm512_storeu_si512(lo, _mm512_packus_epi16(_mm512_and_si512(x, low), _mm512_and_si512(y, low)));
}
inline Lanes load_bf16(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}

}  // namespace sf
