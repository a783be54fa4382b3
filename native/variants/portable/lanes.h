// Sixteen float or int32 lanes, the unit in which every float reduction of the contract is written.
// This is the plain form: arrays and loops, for any machine. Other variants offer the same names.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace sf {

inline constexpr int kLanes = 16;
// How many Lanes the machine's registers hold: what a kernel may keep in its accumulators.
inline constexpr int kLaneRegisters = 4;

struct Lanes {
  float v[16];
};
struct Ints {
  int32_t v[16];
};
struct Mask {
  bool v[16];
};
// Sixteen doubles: they hold integers of up to 53 bits, sums that no int32 could.
struct Doubles {
  double v[16];
};

#define SF_EACH for (int i = 0; i < 16; ++i)

inline Lanes zero() { return Lanes{}; }
inline Lanes set1(float x) {
  Lanes r;
  SF_EACH r.v[i] = x;
  return r;
}
inline Ints set1i(int32_t x) {
  Ints r;
  SF_EACH r.v[i] = x;
  return r;
}
inline Lanes load(const float* p) {
  Lanes r;
  std::memcpy(r.v, p, 64);
  return r;
}
inline void store(float* p, Lanes a) { std::memcpy(p, a.v, 64); }
// Past the caches where the machine can (p aligned to 64 bytes), for what will not be read soon. Call settle() before
// another thread may read it.
inline void store_past_cache(float* p, Lanes a) { store(p, a); }
inline void settle() {}
// The first n (0 to 16) lanes; the rest read as zero and are not written.
inline Lanes load_n(const float* p, int n) {
  Lanes r{};
  for (int i = 0; i < n; ++i) r.v[i] = p[i];
  return r;
}
inline void store_n(float* p, Lanes a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a.v[i];
}
inline Ints loadi(const int32_t* p) {
  Ints r;
  std::memcpy(r.v, p, 64);
  return r;
}
inline void storei(int32_t* p, Ints a) { std::memcpy(p, a.v, 64); }

inline Lanes add(Lanes a, Lanes b) {
  SF_EACH a.v[i] += b.v[i];
  return a;
}
inline Lanes sub(Lanes a, Lanes b) {
  SF_EACH a.v[i] -= b.v[i];
  return a;
}
inline Lanes mul(Lanes a, Lanes b) {
  SF_EACH a.v[i] *= b.v[i];
  return a;
}
inline Lanes div(Lanes a, Lanes b) {
  SF_EACH a.v[i] /= b.v[i];
  return a;
}
// a * b + c with one rounding. The library's fmaf is correctly rounded with or without the instruction.
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  SF_EACH a.v[i] = std::fmaf(a.v[i], b.v[i], c.v[i]);
  return a;
}
inline Lanes sqrt(Lanes a) {
  SF_EACH a.v[i] = std::sqrt(a.v[i]);
  return a;
}
inline Lanes abs(Lanes a) {
  SF_EACH a.v[i] = std::fabs(a.v[i]);
  return a;
}
inline Lanes neg(Lanes a) {
  SF_EACH a.v[i] = -a.v[i];
  return a;
}
// Like x86's instruction: b where either is NaN.
inline Lanes max(Lanes a, Lanes b) {
  SF_EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
inline Lanes min(Lanes a, Lanes b) {
  SF_EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return a;
}
inline Lanes round_even(Lanes a) {
  SF_EACH a.v[i] = std::nearbyintf(a.v[i]);
  return a;
}
// To the nearest integer, ties to even; the least one for NaN and for what no int32 can hold, as x86 has it.
inline int32_t to_int(float x) {
  const float whole = std::nearbyintf(x);
  return whole >= -2147483648.0f && whole < 2147483648.0f ? static_cast<int32_t>(whole) : INT32_MIN;
}
inline Ints to_int(Lanes a) {
  Ints r;
  SF_EACH r.v[i] = to_int(a.v[i]);
  return r;
}
inline Lanes to_float(Ints a) {
  Lanes r;
  SF_EACH r.v[i] = static_cast<float>(a.v[i]);
  return r;
}

inline Doubles to_double(Ints a) {
  Doubles r;
  SF_EACH r.v[i] = a.v[i];
  return r;
}
// sum + factor * a, for integers that stay exact.
inline Doubles add_scaled(Doubles sum, Ints a, double factor) {
  SF_EACH sum.v[i] += factor * a.v[i];
  return sum;
}
inline Lanes to_float(Doubles a) {
  Lanes r;
  SF_EACH r.v[i] = static_cast<float>(a.v[i]);
  return r;
}

inline Ints addi(Ints a, Ints b) {
  SF_EACH a.v[i] = int32_t(uint32_t(a.v[i]) + uint32_t(b.v[i]));
  return a;
}
inline Ints subi(Ints a, Ints b) {
  SF_EACH a.v[i] = int32_t(uint32_t(a.v[i]) - uint32_t(b.v[i]));
  return a;
}
inline Ints muli(Ints a, Ints b) {
  SF_EACH a.v[i] = int32_t(uint32_t(a.v[i]) * uint32_t(b.v[i]));
  return a;
}
inline Ints andi(Ints a, Ints b) {
  SF_EACH a.v[i] &= b.v[i];
  return a;
}
inline Ints xori(Ints a, Ints b) {
  SF_EACH a.v[i] ^= b.v[i];
  return a;
}
// Unsigned products: each lane's 64 bits in two halves.
inline void mul_wide(Ints a, uint32_t b, Ints& high, Ints& low) {
  SF_EACH {
    const uint64_t product = uint64_t(uint32_t(a.v[i])) * b;
    high.v[i] = int32_t(product >> 32);
    low.v[i] = int32_t(product);
  }
}
// Four lanes by four: in each quarter, lane j of a[i] changes place with lane i of a[j].
inline void transpose_quarters(Ints (&a)[4]) {
  for (int quarter = 0; quarter < 16; quarter += 4)
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < i; ++j) {
        const int32_t kept = a[i].v[quarter + j];
        a[i].v[quarter + j] = a[j].v[quarter + i];
        a[j].v[quarter + i] = kept;
      }
}
template <int N>
inline Ints shl(Ints a) {
  SF_EACH a.v[i] = int32_t(uint32_t(a.v[i]) << N);
  return a;
}
template <int N>
inline Ints shr(Ints a) {
  SF_EACH a.v[i] = int32_t(uint32_t(a.v[i]) >> N);
  return a;
}  // logical
template <int N>
inline Ints sar(Ints a) {
  SF_EACH a.v[i] >>= N;
  return a;
}  // arithmetic
inline Lanes as_float(Ints a) {
  Lanes r;
  std::memcpy(r.v, a.v, 64);
  return r;
}
inline Ints as_int(Lanes a) {
  Ints r;
  std::memcpy(r.v, a.v, 64);
  return r;
}

inline Mask less(Lanes a, Lanes b) {
  Mask m;
  SF_EACH m.v[i] = a.v[i] < b.v[i];
  return m;
}
inline Mask first(int n) {
  Mask m;
  SF_EACH m.v[i] = i < n;
  return m;
}
// Bit i is lane i.
inline uint32_t mask_bits(Mask m) {
  uint32_t bits = 0;
  SF_EACH bits |= uint32_t(m.v[i]) << i;
  return bits;
}
inline Lanes select(Mask m, Lanes yes, Lanes no) {
  SF_EACH no.v[i] = m.v[i] ? yes.v[i] : no.v[i];
  return no;
}

// The contract's one tree: lane i with lane i + 8, then + 4, + 2, + 1.
inline float reduce_add(Lanes a) {
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
  return a.v[0];
}
inline float reduce_max(Lanes a) {
  float m = a.v[0];
  SF_EACH m = a.v[i] > m ? a.v[i] : m;
  return m;
}
// Each lane's low byte.
inline void store_bytes(int8_t* p, Ints a) { SF_EACH p[i] = static_cast<int8_t>(a.v[i]); }
// 64 integers at once: each as a byte, which it must fit in; or, if of 15 bits, as hi = (q + 64) >> 7 and lo = q - 128
// hi.
inline void store_bytes(int8_t* p, Ints a, Ints b, Ints c, Ints d) {
  store_bytes(p, a);
  store_bytes(p + 16, b);
  store_bytes(p + 32, c);
  store_bytes(p + 48, d);
}
inline void store_two_limbs(int8_t* hi, int8_t* lo, Ints a, Ints b, Ints c, Ints d) {
  const Ints q[4] = {a, b, c, d};
  for (int part = 0; part < 4; ++part) {
    const Ints high = sar<7>(addi(q[part], set1i(64)));
    store_bytes(hi + 16 * part, high);
    store_bytes(lo + 16 * part, subi(q[part], shl<7>(high)));
  }
}
// Four registers of values 0 to 65535: their high bytes to hi[64], their low bytes to lo[64]. Quads are transposed
// (what packing within 128-bit parts gives for free): byte 16 i + 4 j + e is lane 4 i + e of register j.
inline void store_limbs(uint8_t* hi, uint8_t* lo, Ints a, Ints b, Ints c, Ints d) {
  const int32_t* from[4] = {a.v, b.v, c.v, d.v};
  for (int j = 0; j < 4; ++j) SF_EACH {
      const int at = 16 * (i / 4) + 4 * j + i % 4;
      hi[at] = static_cast<uint8_t>(from[j][i] >> 8);
      lo[at] = static_cast<uint8_t>(from[j][i]);
    }
}
// 16 bfloat16 widened; 16 float narrowed to nearest even (no NaN handling: callers hold finite values).
inline Lanes load_bf16(const uint16_t* p) {
  Ints r;
  SF_EACH r.v[i] = int32_t(uint32_t(p[i]) << 16);
  return as_float(r);
}

#undef SF_EACH
}  // namespace sf
