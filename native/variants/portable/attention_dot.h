// Integer dot products of four bytes on sixteen lanes, for attention. The plain form; other variants offer the same
// names. Keys lie in memory with 128 added to each byte (kernels/kv.h). A variant whose kKeyBias is 128 multiplies them
// as they are, and the caller starts the sum at -128 times the sum of the query's bytes.
#pragma once
#include <cstdint>
#include <cstring>

#include "lanes.h"

namespace sf::attention {

inline constexpr int32_t kKeyBias = 0;

struct KeyLine {
  int8_t v[64];
};
struct QueryQuad {
  int8_t v[4];
};
struct ValueLine {
  int8_t v[64];
};
struct WeightQuad {
  uint8_t v[4];
};

inline KeyLine load_key_line(const uint8_t* p) {
  KeyLine k;
  for (int i = 0; i < 64; ++i) k.v[i] = static_cast<int8_t>(p[i] ^ 0x80);
  return k;
}
inline QueryQuad load_query_quad(const int8_t* p) {
  QueryQuad q;
  std::memcpy(q.v, p, 4);
  return q;
}
inline ValueLine load_value_line(const uint8_t* p) {
  ValueLine v;
  std::memcpy(v.v, p, 64);
  return v;
}
inline WeightQuad load_weight_quad(const uint8_t* p) {
  WeightQuad w;
  std::memcpy(w.v, p, 4);
  return w;
}

// Lane i gets the sum over e of line[4 i + e] * quad[e].
template <class Line, class Quad>
inline Ints dot_quads(Ints sum, const Line& line, const Quad& quad) {
  for (int i = 0; i < 16; ++i)
    for (int e = 0; e < 4; ++e) sum.v[i] += int32_t(line.v[4 * i + e]) * quad.v[e];
  return sum;
}
inline Ints dot(Ints sum, const KeyLine& k, const QueryQuad& q) { return dot_quads(sum, k, q); }
inline Ints dot(Ints sum, const ValueLine& v, const WeightQuad& w) { return dot_quads(sum, v, w); }
inline void prefetch(const void*) {}

}  // namespace sf::attention
