// Sixteen lanes in four 128-bit registers: register i holds lanes 4 i to 4 i + 3. Names and meaning are those of
// portable/lanes.h.
#pragma once
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace sf {

inline constexpr int kLanes = 16;
inline constexpr int kLaneRegisters = 8;

struct Lanes {
  float32x4_t v[4];
};
struct Ints {
  int32x4_t v[4];
};
struct Mask {
  uint32x4_t v[4];  // all ones or all zeros in each lane
};
struct Doubles {
  float64x2_t v[8];  // two lanes each
};

// {f(register 0 of each), f(register 1 of each), ...}
template <class Result, class F, class... Of>
[[gnu::always_inline]] inline Result by_register(const F& f, const Of&... of) {
  return {{f(of.v[0]...), f(of.v[1]...), f(of.v[2]...), f(of.v[3]...)}};
}

inline Lanes set1(float x) { return {{vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x)}}; }
inline Lanes zero() { return set1(0.0f); }
inline Ints set1i(int32_t x) { return {{vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x)}}; }
inline Lanes load(const float* p) { return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}}; }
inline void store(float* p, Lanes a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
// A pair that is not to be kept in caches. Ordered as other stores are, so there is nothing to settle.
inline void store_past_cache(float* p, Lanes a) {
  __asm__ volatile("stnp %q1, %q2, [%0]\n\tstnp %q3, %q4, [%0, 32]"
                   :
                   : "r"(p), "w"(a.v[0]), "w"(a.v[1]), "w"(a.v[2]), "w"(a.v[3])
                   : "memory");
}
inline void settle() {}
inline Lanes load_n(const float* p, int n) {
  if (n == kLanes) return load(p);
  float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
inline void store_n(float* p, Lanes a, int n) {
  if (n == kLanes) return store(p, a);
  float lanes[kLanes];
  store(lanes, a);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}
inline Ints loadi(const int32_t* p) { return {{vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)}}; }
inline void storei(int32_t* p, Ints a) {
  for (int i = 0; i < 4; ++i) vst1q_s32(p + 4 * i, a.v[i]);
}

#define SF_FLOATS(name, ...)                                                                   \
  inline Lanes name(Lanes a, Lanes b) {                                                        \
    return by_register<Lanes>([](float32x4_t x, float32x4_t y) { return __VA_ARGS__; }, a, b); \
  }
// In unsigned numbers, which wrap around: gcc's vaddq_s32 is the language's +, and undefined where a sum overflows.
#define SF_INTS(name, instruction)                                                                   \
  inline Ints name(Ints a, Ints b) {                                                                 \
    const auto compute = [](int32x4_t x, int32x4_t y) {                                              \
      return vreinterpretq_s32_u32(instruction(vreinterpretq_u32_s32(x), vreinterpretq_u32_s32(y))); \
    };                                                                                               \
    return by_register<Ints>(compute, a, b);                                                         \
  }
SF_FLOATS(add, vaddq_f32(x, y))
SF_FLOATS(sub, vsubq_f32(x, y))
SF_FLOATS(mul, vmulq_f32(x, y))
SF_FLOATS(div, vdivq_f32(x, y))
// x86's: the second where either is NaN. fmax and fmaxnm return something else.
SF_FLOATS(max, vbslq_f32(vcgtq_f32(x, y), x, y))
SF_FLOATS(min, vbslq_f32(vcltq_f32(x, y), x, y))
SF_INTS(addi, vaddq_u32)
SF_INTS(subi, vsubq_u32)
SF_INTS(muli, vmulq_u32)
SF_INTS(andi, vandq_u32)
SF_INTS(xori, veorq_u32)
#undef SF_FLOATS
#undef SF_INTS

inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return by_register<Lanes>([](auto x, auto y, auto z) { return vfmaq_f32(z, x, y); }, a, b, c);
}
inline Lanes sqrt(Lanes a) {
  return by_register<Lanes>([](auto x) { return vsqrtq_f32(x); }, a);
}
inline Lanes abs(Lanes a) {
  return by_register<Lanes>([](auto x) { return vabsq_f32(x); }, a);
}
inline Lanes neg(Lanes a) {
  return by_register<Lanes>([](auto x) { return vnegq_f32(x); }, a);
}
inline Lanes round_even(Lanes a) {
  return by_register<Lanes>([](auto x) { return vrndnq_f32(x); }, a);
}
// The instruction saturates, and makes zero of NaN.
inline Ints to_int(Lanes a) {
  const auto convert = [](float32x4_t x) {
    const uint32x4_t fits = vcaltq_f32(x, vdupq_n_f32(2147483648.0f));
    return vbslq_s32(fits, vcvtnq_s32_f32(x), vdupq_n_s32(INT32_MIN));
  };
  return by_register<Ints>(convert, a);
}
inline Lanes to_float(Ints a) {
  return by_register<Lanes>([](auto x) { return vcvtq_f32_s32(x); }, a);
}

inline Doubles to_double(Ints a) {
  Doubles r;
  for (int i = 0; i < 4; ++i) {
    r.v[2 * i] = vcvtq_f64_s64(vmovl_s32(vget_low_s32(a.v[i])));
    r.v[2 * i + 1] = vcvtq_f64_s64(vmovl_high_s32(a.v[i]));
  }
  return r;
}
inline Doubles add_scaled(Doubles sum, Ints a, double factor) {
  const Doubles wide = to_double(a);
  for (int i = 0; i < 8; ++i) sum.v[i] = vfmaq_f64(sum.v[i], wide.v[i], vdupq_n_f64(factor));
  return sum;
}
inline Lanes to_float(Doubles a) {
  Lanes r;
  for (int i = 0; i < 4; ++i) r.v[i] = vcvt_high_f32_f64(vcvt_f32_f64(a.v[2 * i]), a.v[2 * i + 1]);
  return r;
}

inline void mul_wide(Ints a, uint32_t b, Ints& high, Ints& low) {
  for (int i = 0; i < 4; ++i) {
    const uint32x4_t x = vreinterpretq_u32_s32(a.v[i]), factor = vdupq_n_u32(b);
    const int32x4_t first = vreinterpretq_s32_u64(vmull_u32(vget_low_u32(x), vget_low_u32(factor)));
    const int32x4_t second = vreinterpretq_s32_u64(vmull_high_u32(x, factor));
    low.v[i] = vuzp1q_s32(first, second);
    high.v[i] = vuzp2q_s32(first, second);
  }
}
inline void transpose_quarters(Ints (&a)[4]) {
  const auto zip1 = [](int32x4_t x, int32x4_t y) {
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(x), vreinterpretq_s64_s32(y)));
  };
  const auto zip2 = [](int32x4_t x, int32x4_t y) {
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(x), vreinterpretq_s64_s32(y)));
  };
  for (int i = 0; i < 4; ++i) {
    const int32x4_t even01 = vtrn1q_s32(a[0].v[i], a[1].v[i]), odd01 = vtrn2q_s32(a[0].v[i], a[1].v[i]);
    const int32x4_t even23 = vtrn1q_s32(a[2].v[i], a[3].v[i]), odd23 = vtrn2q_s32(a[2].v[i], a[3].v[i]);
    a[0].v[i] = zip1(even01, even23);
    a[1].v[i] = zip1(odd01, odd23);
    a[2].v[i] = zip2(even01, even23);
    a[3].v[i] = zip2(odd01, odd23);
  }
}
template <int N>
inline Ints shl(Ints a) {
  return by_register<Ints>([](auto x) { return vshlq_n_s32(x, N); }, a);
}
template <int N>
inline Ints shr(Ints a) {
  return by_register<Ints>([](auto x) { return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(x), N)); }, a);
}
template <int N>
inline Ints sar(Ints a) {
  return by_register<Ints>([](auto x) { return vshrq_n_s32(x, N); }, a);
}
// Of a register without a shift: the instruction has no form for zero.
template <>
inline Ints shr<0>(Ints a) {
  return a;
}
inline Lanes as_float(Ints a) {
  return by_register<Lanes>([](auto x) { return vreinterpretq_f32_s32(x); }, a);
}
inline Ints as_int(Lanes a) {
  return by_register<Ints>([](auto x) { return vreinterpretq_s32_f32(x); }, a);
}

inline Mask less(Lanes a, Lanes b) {
  return by_register<Mask>([](auto x, auto y) { return vcltq_f32(x, y); }, a, b);
}
inline Mask first(int n) {
  static constexpr int32_t kNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return by_register<Mask>([](auto number, auto count) { return vcltq_s32(number, count); }, loadi(kNumbers), set1i(n));
}
inline uint32_t mask_bits(Mask m) {
  static constexpr uint32_t kBits[4] = {1, 2, 4, 8};
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= vaddvq_u32(vandq_u32(m.v[i], vld1q_u32(kBits))) << 4 * i;
  return bits;
}
inline Lanes select(Mask m, Lanes yes, Lanes no) {
  return by_register<Lanes>([](auto which, auto x, auto y) { return vbslq_f32(which, x, y); }, m, yes, no);
}

inline float reduce_add(Lanes a) {
  const float32x4_t quarter = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  return vpadds_f32(vadd_f32(vget_low_f32(quarter), vget_high_f32(quarter)));
}
inline float reduce_max(Lanes a) {
  const auto larger = [](float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); };
  const float32x4_t quarter = larger(larger(a.v[0], a.v[2]), larger(a.v[1], a.v[3]));
  const float32x4_t pair = larger(quarter, vextq_f32(quarter, quarter, 2));
  const float x = vgetq_lane_f32(pair, 0), y = vgetq_lane_f32(pair, 1);
  return x > y ? x : y;
}

// The low halves of sixteen lanes' 32 or 16 bits.
inline int16x8_t low_words(int32x4_t a, int32x4_t b) {
  return vuzp1q_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
}
inline int8x16_t low_bytes(int16x8_t a, int16x8_t b) {
  return vuzp1q_s8(vreinterpretq_s8_s16(a), vreinterpretq_s8_s16(b));
}
inline void store_bytes(int8_t* p, Ints a) {
  vst1q_s8(p, low_bytes(low_words(a.v[0], a.v[1]), low_words(a.v[2], a.v[3])));
}
inline void store_bytes(int8_t* p, Ints a, Ints b, Ints c, Ints d) {
  store_bytes(p, a);
  store_bytes(p + 16, b);
  store_bytes(p + 32, c);
  store_bytes(p + 48, d);
}
inline void store_two_limbs(int8_t* hi, int8_t* lo, Ints a) {
  const int16x8_t q0 = low_words(a.v[0], a.v[1]), q1 = low_words(a.v[2], a.v[3]);
  const int16x8_t high0 = vrshrq_n_s16(q0, 7), high1 = vrshrq_n_s16(q1, 7);  // rounds as adding 64 does
  vst1q_s8(hi, low_bytes(high0, high1));
  vst1q_s8(lo, low_bytes(vsubq_s16(q0, vshlq_n_s16(high0, 7)), vsubq_s16(q1, vshlq_n_s16(high1, 7))));
}
inline void store_two_limbs(int8_t* hi, int8_t* lo, Ints a, Ints b, Ints c, Ints d) {
  store_two_limbs(hi, lo, a);
  store_two_limbs(hi + 16, lo + 16, b);
  store_two_limbs(hi + 32, lo + 32, c);
  store_two_limbs(hi + 48, lo + 48, d);
}
inline void store_limbs(uint8_t* hi, uint8_t* lo, Ints a, Ints b, Ints c, Ints d) {
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t ab = vreinterpretq_u8_s16(low_words(a.v[i], b.v[i]));
    const uint8x16_t cd = vreinterpretq_u8_s16(low_words(c.v[i], d.v[i]));
    vst1q_u8(hi + 16 * i, vuzp2q_u8(ab, cd));
    vst1q_u8(lo + 16 * i, vuzp1q_u8(ab, cd));
  }
}
inline Lanes load_bf16(const uint16_t* p) {
  Lanes r;
  for (int i = 0; i < 4; ++i) r.v[i] = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16));
  return r;
}

}  // namespace sf
