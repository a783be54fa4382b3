// Sixteen lanes in two 256-bit registers: lo holds lanes 0 to 7. Names and meaning are those of portable/lanes.h.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace sf {

inline constexpr int kLanes = 16;
inline constexpr int kLaneRegisters = 8;

struct Lanes {
  __m256 lo, hi;
};
struct Ints {
  __m256i lo, hi;
};
struct Mask {
  __m256 lo, hi;  // all ones or all zeros in each lane
};
struct Doubles {
  __m256d v[4];  // four lanes each
};

inline __m256i first_bits(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Lanes set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Ints set1i(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, Lanes a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline void store_past_cache(float* p, Lanes a) {
  _mm256_stream_ps(p, a.lo);
  _mm256_stream_ps(p + 8, a.hi);
}
inline void settle() { _mm_sfence(); }
inline Lanes load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, first_bits(n)), _mm256_maskload_ps(p + 8, first_bits(n - 8))};
}
inline void store_n(float* p, Lanes a, int n) {
  _mm256_maskstore_ps(p, first_bits(n), a.lo);
  _mm256_maskstore_ps(p + 8, first_bits(n - 8), a.hi);
}
inline Ints loadi(const int32_t* p) {
  const auto* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
inline void storei(int32_t* p, Ints a) {
  auto* q = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(q, a.lo);
  _mm256_storeu_si256(q + 1, a.hi);
}

inline Lanes add(Lanes a, Lanes b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Lanes sub(Lanes a, Lanes b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Lanes mul(Lanes a, Lanes b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Lanes div(Lanes a, Lanes b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Lanes sqrt(Lanes a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
inline Lanes abs(Lanes a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline Lanes neg(Lanes a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(sign, a.lo), _mm256_xor_ps(sign, a.hi)};
}
inline Lanes max(Lanes a, Lanes b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Lanes min(Lanes a, Lanes b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline Lanes round_even(Lanes a) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, mode), _mm256_round_ps(a.hi, mode)};
}
inline Ints to_int(Lanes a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
inline Lanes to_float(Ints a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }

inline Doubles to_double(Ints a) {
  return {{_mm256_cvtepi32_pd(_mm256_castsi256_si128(a.lo)), _mm256_cvtepi32_pd(_mm256_extracti128_si256(a.lo, 1)),
           _mm256_cvtepi32_pd(_mm256_castsi256_si128(a.hi)), _mm256_cvtepi32_pd(_mm256_extracti128_si256(a.hi, 1))}};
}
inline Doubles add_scaled(Doubles sum, Ints a, double factor) {
  const Doubles wide = to_double(a);
  for (int i = 0; i < 4; ++i) sum.v[i] = _mm256_fmadd_pd(wide.v[i], _mm256_set1_pd(factor), sum.v[i]);
  return sum;
}
inline Lanes to_float(Doubles a) {
  return {_mm256_set_m128(_mm256_cvtpd_ps(a.v[1]), _mm256_cvtpd_ps(a.v[0])),
          _mm256_set_m128(_mm256_cvtpd_ps(a.v[3]), _mm256_cvtpd_ps(a.v[2]))};
}

inline Ints addi(Ints a, Ints b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
inline Ints subi(Ints a, Ints b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
inline Ints muli(Ints a, Ints b) { return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)}; }
inline Ints andi(Ints a, Ints b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
inline Ints xori(Ints a, Ints b) { return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)}; }
inline void mul_wide8(__m256i a, __m256i b, __m256i& high, __m256i& low) {
  const __m256i even = _mm256_mul_epu32(a, b), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}
inline void mul_wide(Ints a, uint32_t b, Ints& high, Ints& low) {
  const __m256i factor = _mm256_set1_epi32(static_cast<int32_t>(b));
  mul_wide8(a.lo, factor, high.lo, low.lo);
  mul_wide8(a.hi, factor, high.hi, low.hi);
}
inline void transpose_quarters8(__m256i& a, __m256i& b, __m256i& c, __m256i& d) {
  const __m256i ab = _mm256_unpacklo_epi32(a, b), AB = _mm256_unpackhi_epi32(a, b);
  const __m256i cd = _mm256_unpacklo_epi32(c, d), CD = _mm256_unpackhi_epi32(c, d);
  a = _mm256_unpacklo_epi64(ab, cd);
  b = _mm256_unpackhi_epi64(ab, cd);
  c = _mm256_unpacklo_epi64(AB, CD);
  d = _mm256_unpackhi_epi64(AB, CD);
}
inline void transpose_quarters(Ints (&a)[4]) {
  transpose_quarters8(a[0].lo, a[1].lo, a[2].lo, a[3].lo);
  transpose_quarters8(a[0].hi, a[1].hi, a[2].hi, a[3].hi);
}
template <int N>
inline Ints shl(Ints a) {
  return {_mm256_slli_epi32(a.lo, N), _mm256_slli_epi32(a.hi, N)};
}
template <int N>
inline Ints shr(Ints a) {
  return {_mm256_srli_epi32(a.lo, N), _mm256_srli_epi32(a.hi, N)};
}
template <int N>
inline Ints sar(Ints a) {
  return {_mm256_srai_epi32(a.lo, N), _mm256_srai_epi32(a.hi, N)};
}
inline Lanes as_float(Ints a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
inline Ints as_int(Lanes a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }

inline Mask less(Lanes a, Lanes b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
inline Mask first(int n) { return {_mm256_castsi256_ps(first_bits(n)), _mm256_castsi256_ps(first_bits(n - 8))}; }
inline uint32_t mask_bits(Mask m) {
  return static_cast<uint32_t>(_mm256_movemask_ps(m.lo) | _mm256_movemask_ps(m.hi) << 8);
}
inline Lanes select(Mask m, Lanes yes, Lanes no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}

inline float reduce_add(Lanes a) {
  const __m256 half = _mm256_add_ps(a.lo, a.hi);
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
inline float reduce_max(Lanes a) {
  const __m256 half = _mm256_max_ps(a.lo, a.hi);
  const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
inline void store_bytes(int8_t* p, Ints a) {
  const __m256i low = _mm256_set1_epi32(0xFF);
  const __m256i words = _mm256_packus_epi32(_mm256_and_si256(a.lo, low), _mm256_and_si256(a.hi, low));
  const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);  // packus works within 128-bit halves
  const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
// The packs work within 128-bit halves: what they leave as [half][a.lo, a.hi, b.lo, b.hi] is put in order here.
inline void store_packed(int8_t* p, __m256i a, __m256i b) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order));
}
inline void store_bytes(int8_t* p, Ints a, Ints b, Ints c, Ints d) {
  store_packed(p, _mm256_packs_epi32(a.lo, a.hi), _mm256_packs_epi32(b.lo, b.hi));
  store_packed(p + 32, _mm256_packs_epi32(c.lo, c.hi), _mm256_packs_epi32(d.lo, d.hi));
}
inline void store_two_limbs(int8_t* hi, int8_t* lo, Ints a, Ints b) {
  const __m256i qa = _mm256_packs_epi32(a.lo, a.hi), qb = _mm256_packs_epi32(b.lo, b.hi), half = _mm256_set1_epi16(64);
  const __m256i high_a = _mm256_srai_epi16(_mm256_add_epi16(qa, half), 7);
  const __m256i high_b = _mm256_srai_epi16(_mm256_add_epi16(qb, half), 7);
  store_packed(hi, high_a, high_b);
  store_packed(lo, _mm256_sub_epi16(qa, _mm256_slli_epi16(high_a, 7)),
               _mm256_sub_epi16(qb, _mm256_slli_epi16(high_b, 7)));
}
inline void store_two_limbs(int8_t* hi, int8_t* lo, Ints a, Ints b, Ints c, Ints d) {
  store_two_limbs(hi, lo, a, b);
  store_two_limbs(hi + 32, lo + 32, c, d);
}
inline void store_limbs(uint8_t* hi, uint8_t* lo, Ints a, Ints b, Ints c, Ints d) {
  const __m256i low = _mm256_set1_epi16(0xFF);
  const __m256i words[4] = {_mm256_packus_epi32(a.lo, b.lo), _mm256_packus_epi32(c.lo, d.lo),
                            _mm256_packus_epi32(a.hi, b.hi), _mm256_packus_epi32(c.hi, d.hi)};
  for (int half = 0; half < 2; ++half) {
    const __m256i x = words[2 * half], y = words[2 * half + 1];
    const __m256i high_bytes = _mm256_packus_epi16(_mm256_srli_epi16(x, 8), _mm256_srli_epi16(y, 8));
    const __m256i low_bytes = _mm256_packus_epi16(_mm256_and_si256(x, low), _mm256_and_si256(y, low));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(hi + 32 * half), high_bytes);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lo + 32 * half), low_bytes);
  }
}
inline Lanes load_bf16(const uint16_t* p) {
  const auto* q = reinterpret_cast<const __m128i*>(p);
  const __m256i lo = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(q)), 16);
  const __m256i hi = _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1)), 16);
  return {_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)};
}

}  // namespace sf
