// The one order in which ids are ranked by a value: larger first, ties to the lower id. NaN ranks as -infinity, and
// -0 ties with 0. A rank is a 64-bit key that sorts ascending in that order: value bits above, id below.
#pragma once
#include <bit>
#include <cstdint>
#include <limits>

namespace sf {

inline uint64_t rank_key(float value, int64_t id) {
  const float plain = value == value ? value + 0.0f : -std::numeric_limits<float>::infinity();
  const uint32_t bits = std::bit_cast<uint32_t>(plain);
  // Ascending keys for descending values: negative floats already sort that way by their bits.
  const uint32_t descending = bits >> 31 ? bits : ~bits & 0x7FFFFFFFu;
  return uint64_t(descending) << 32 | uint32_t(id);
}

inline int64_t ranked_id(uint64_t key) { return static_cast<int64_t>(key & 0xFFFFFFFFu); }

inline float ranked_value(uint64_t key) {
  const auto descending = static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>(descending >> 31 ? descending : ~descending & 0x7FFFFFFFu);
}

}  // namespace sf
