// Packed weights: how a matrix of n outputs by k columns lies in memory, the same in every variant.
//
//   header (256 bytes) | row scales float32 [padded n] | panel 0 | panel 1 | ...        each part 64-byte aligned
//
// A panel holds 32 outputs and the whole depth, padded with zeros to tiles of 64 columns:
//
//   group parameters [groups] | codes [tiles]
//
// A line is 64 bytes: 16 outputs by 4 columns (AMX's B operand and vpdpbusd's). Half 0 is outputs 0-15, half 1 16-31.
//   8 bit: a tile is 2 KB: half 0's 16 lines, then half 1's.
//   4 bit: a tile is 1 KB: 16 lines; a byte's low nibble is the code of half 0's weight, its high nibble half 1's.
// Group parameters, for each group half 0's then half 1's:
//   one limb:  16 multipliers then 16 offsets (uint8): weight = uint8(table[code] * multiplier + offset) as int8, where
//              the table and the offset were shifted so that the table has no negative entry and no product exceeds 255
//   two limbs: 16 multipliers M (int16), then, if the matrix has offsets, 16 offsets Z (int16):
//              4 bit: weight = table[code] * M + Z, within two limbs for every entry of the table
//              8 bit: weight = ((code * M + 64) >> 7) + Z
//
// Two limbs may be narrower in memory; compact.h expands them to the above.
//   width: bits of a code u in memory. 1, 2 and 3 become a 4-bit code, 5 and 6 the 8-bit code stretch * u + base - 128.
//     A tile is planes of 4, 2 or 1 bits, the low bits of the codes first. Line i of a plane of W bits is its lines'
//     bits i % (4 / W) * W and up: half 0's in the low nibble of a byte, half 1's in the high one.
//   scale_bits: 16: M and Z as above. 8 or 4: parameters of 256 columns (a super-block) at a time, from which
//     step = d * (1 / row scale * 2^power) * s,  M = round(step * (bits == 8 ? 128 / stretch : 1)),
//     Z = round(e * (1 / row scale * 2^power) * m + centre * step), in this order in float32:
//       d (float16) of 32 outputs | e (float16) of 32 outputs, if there are offsets |
//       lines of s, [four groups][half]: 16 outputs by 4 groups | of m the same, if there are offsets
//     8: s and m are int8. 4: a byte has s in its low nibble and m in its high one.
#pragma once
#include <bit>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/sizes.h"

namespace sf {

inline constexpr int kPanel = 32;                           // outputs
inline constexpr int kHalf = 16;                            // outputs of a line
inline constexpr int kTile = 64;                            // columns
inline constexpr int kTileLines = 16;                       // lines of one half of a tile
inline constexpr int kLine = 64;                            // bytes
inline constexpr int64_t kPlaneBytes = kTileLines * kLine;  // one half of a tile, a byte a weight
inline constexpr int64_t kMaxColumns = 1 << 17;             // more could overflow the int32 sums
inline constexpr int kSuper = 256;                          // columns of a super-block
inline constexpr int kSuperTiles = kSuper / kTile;

// Lines of 64 bytes that a plane of so many bits takes of a tile; a plane of 4 bits has all of them.
constexpr int64_t plane_bytes(int bits) { return kPlaneBytes * bits / 4; }

struct PackedHeader {
  char magic[8];  // "SFPACK3"
  int64_t n, k, bytes;
  int64_t row_scales, panels;  // byte offsets from the header
  int64_t panel_bytes, codes;  // size of a panel, and where in it the codes start
  int32_t bits, limbs, group, with_offsets;
  alignas(16) uint8_t table[16];         // one limb: shifted to start at zero
  int32_t width, scale_bits;             // in memory
  int32_t stretch, base, centre, power;  // of narrow codes and scales
  uint8_t unused[256 - 8 - 7 * 8 - 4 * 4 - 16 - 6 * 4];

  int64_t num_panels() const { return divide_up(n, kPanel); }
  int64_t num_tiles() const { return divide_up(k, kTile); }
  int64_t num_groups() const { return group ? divide_up(k, group) : 0; }
  float factor() const { return (bits == 8 ? 128.0f : 1.0f) / static_cast<float>(stretch); }  // of M
  float two_to_power() const { return std::ldexp(1.0f, power); }
  bool has_narrow_codes() const { return width != bits; }
  bool has_narrow_scales() const { return scale_bits != 16; }
  // Of narrow codes: the bits of the first plane, and of the second, if there is one.
  int low_width() const { return width > 4 ? 4 : width == 3 ? 2 : width; }
  int high_width() const { return width - low_width(); }
  // Bytes of one group's parameters of one half and of one tile's codes, as kernels multiply them.
  int64_t half_parameter_bytes() const { return limbs == 1 ? 32 : with_offsets ? 64 : 32; }
  int64_t group_bytes() const { return 2 * half_parameter_bytes(); }
  int64_t full_tile_bytes() const { return bits == 8 ? 2 * kPlaneBytes : kPlaneBytes; }
  // As they are in memory.
  int64_t tile_bytes() const {
    return has_narrow_codes() ? plane_bytes(low_width()) + plane_bytes(high_width()) : full_tile_bytes();
  }
  // Groups of a super-block, and lines of their s for one half. Not divided: it is asked for while multiplying.
  int64_t super_groups() const { return group == 16 ? kSuper / 16 : kSuper / 32; }
  int64_t num_super_lines() const { return super_groups() / 4; }
  int64_t super_bytes() const {
    return (1 + with_offsets) * kPanel * 2 + num_super_lines() * 2 * kLine * (scale_bits == 8 ? 1 + with_offsets : 1);
  }
  int64_t parameter_bytes() const {
    return has_narrow_scales() ? k / kSuper * super_bytes() : num_groups() * group_bytes();
  }
  // Is table[code] = code + some constant?
  bool is_linear() const {
    if (bits != 4) return false;
    for (int i = 1; i < 1 << width; ++i)
      if (static_cast<int8_t>(table[i]) != static_cast<int8_t>(table[0]) + i) return false;
    return true;
  }
  // What gemv_codes.h reduces linear codes by: 8, or of narrow ones what makes the first the table's own.
  int code_centre() const { return width < 4 ? -static_cast<int8_t>(table[0]) : 8; }
  const uint8_t* panel(int64_t p) const { return reinterpret_cast<const uint8_t*>(this) + panels + p * panel_bytes; }
  const float* scales() const {
    return reinterpret_cast<const float*>(reinterpret_cast<const uint8_t*>(this) + row_scales);
  }
};
static_assert(sizeof(PackedHeader) == 256);

inline constexpr int kLargestWeight = 127 * 128 + 63;  // of two limbs

// How codes and scales lie in memory.
struct Narrowing {
  int32_t width, scale_bits;
};

// Where the first panel of a matrix of n outputs begins.
inline int64_t panels_begin(int64_t n) {
  return align64(static_cast<int64_t>(sizeof(PackedHeader)) + divide_up(n, kPanel) * kPanel * 4);
}

// A header with every size filled in, or an error for a combination that has no kernel.
inline Error describe(int64_t n, int64_t k, int32_t bits, int32_t limbs, int32_t group, int32_t with_offsets,
                      const Narrowing& narrow, PackedHeader& h) {
  SF_REQUIRE(n > 0 && n < (int64_t(1) << 31) && k > 0 && k < kMaxColumns, kBadShape);
  SF_REQUIRE((bits == 4 || bits == 8) && (limbs == 1 || limbs == 2), kBadOption);
  const bool plain = bits == 8 && limbs == 1;
  SF_REQUIRE(plain ? group == 0 : group == 16 || group == 32 || (group > 0 && group % kTile == 0), kBadOption);
  SF_REQUIRE(!(plain && with_offsets), kBadOption);
  const auto [width, scale_bits] = narrow;
  SF_REQUIRE(width == bits || (limbs == 2 && (bits == 4 ? width > 0 && width < 4 : width == 5 || width == 6)),
             kBadOption);
  SF_REQUIRE(scale_bits == 16 || ((scale_bits == 8 || (scale_bits == 4 && with_offsets)) && limbs == 2), kBadOption);
  SF_REQUIRE(scale_bits == 16 || (k % kSuper == 0 && group <= 32), kBadShape);
  h = PackedHeader{};
  std::memcpy(h.magic, "SFPACK3", 8);
  h.n = n, h.k = k, h.bits = bits, h.limbs = limbs, h.group = group, h.with_offsets = with_offsets;
  h.width = width, h.scale_bits = scale_bits, h.stretch = 1;
  h.codes = align64(h.parameter_bytes());
  h.panel_bytes = h.codes + h.num_tiles() * h.tile_bytes();
  h.row_scales = sizeof(PackedHeader);
  h.panels = panels_begin(n);
  h.bytes = h.panels + h.num_panels() * h.panel_bytes;
  return kOk;
}

// May rows first to first + rows of n be written by themselves? Whole panels only.
inline bool whole_panels(int64_t n, int64_t first, int64_t rows) {
  return first >= 0 && first % kPanel == 0 && rows > 0 && rows <= n - first &&
         (rows % kPanel == 0 || first + rows == n);
}

// ---- single weights, read back: for rows of a packed table ----

inline float half_to_float(uint16_t half) {
  const float magnitude = std::bit_cast<float>(uint32_t(half & 0x7FFF) << 13) * 0x1p112f;
  return half & 0x8000 ? -magnitude : magnitude;
}

// The byte or nibble that kernels multiply. `at`: of a line, the output's column.
inline int code_at(const PackedHeader& h, const uint8_t* codes, int64_t line, int half, int64_t at) {
  const uint8_t* tile = codes + line / kTileLines * h.tile_bytes();
  const int64_t i = line % kTileLines;
  if (h.width == 8) return static_cast<int8_t>(tile[half * kPlaneBytes + i * kLine + at]);
  const auto bits_of = [&](const uint8_t* plane, int width) {
    const int64_t each = 4 / width;
    return plane[i / each * kLine + at] >> (i % each * width + 4 * half) & ((1 << width) - 1);
  };
  int code = bits_of(tile, h.low_width());
  if (const int width = h.high_width()) code |= bits_of(tile + plane_bytes(h.low_width()), width) << h.low_width();
  return h.bits == 8 ? h.stretch * code + h.base - 128 : code;
}

// M and Z of an output's group.
struct GroupParameters {
  int scale, offset;
};
inline GroupParameters narrow_parameters(const PackedHeader& h, const uint8_t* panel, int64_t group, int64_t output,
                                         float row_scale) {
  const int64_t each = h.super_groups(), of_super = group % each;
  const uint8_t* super = panel + group / each * h.super_bytes();
  const uint8_t* lines = super + (1 + h.with_offsets) * kPanel * 2;
  const int64_t place = (of_super / 4 * 2 + output / kHalf) * kLine + output % kHalf * 4 + of_super % 4;
  const auto step = [&](int64_t which) {
    uint16_t half;
    std::memcpy(&half, super + which * kPanel * 2 + 2 * output, 2);
    return half_to_float(half) * (1.0f / row_scale * h.two_to_power());
  };
  const uint8_t s = lines[place];
  const int scale = h.scale_bits == 4 ? s & 15 : static_cast<int8_t>(s);
  const float wide = step(0) * static_cast<float>(scale);
  const auto round = [](float x) { return static_cast<int>(std::nearbyint(x)); };
  GroupParameters p{round(wide * h.factor()), 0};
  if (!h.with_offsets) return p;
  const int m = h.scale_bits == 4 ? s >> 4 : static_cast<int8_t>(lines[place + h.num_super_lines() * 2 * kLine]);
  p.offset = round(step(1) * static_cast<float>(m) + static_cast<float>(h.centre) * wide);
  return p;
}
inline GroupParameters wide_parameters(const PackedHeader& h, const uint8_t* panel, int64_t group, int64_t output) {
  const uint8_t* at =
      panel + group * h.group_bytes() + output / kHalf * h.half_parameter_bytes() + 2 * (output % kHalf);
  int16_t scale, offset = 0;
  std::memcpy(&scale, at, 2);
  if (h.with_offsets) std::memcpy(&offset, at + 32, 2);
  return {scale, offset};
}

inline int weight_at(const PackedHeader& h, int64_t row, int64_t column) {
  const uint8_t* panel = h.panel(row / kPanel);
  const int64_t output = row % kPanel, lane = output % kHalf, half = output / kHalf;
  const int code = code_at(h, panel + h.codes, column / 4, static_cast<int>(half), lane * 4 + column % 4);
  const int64_t group = h.group ? column / h.group : 0;
  if (h.limbs == 1 && h.bits == 4) {
    const uint8_t* parameters = panel + group * h.group_bytes() + half * h.half_parameter_bytes();
    return static_cast<int8_t>(h.table[code] * parameters[lane] + parameters[16 + lane]);
  }
  const int value = h.bits == 4 ? static_cast<int8_t>(h.table[code]) : code;
  if (!h.group) return value;
  const auto [scale, offset] = h.has_narrow_scales() ? narrow_parameters(h, panel, group, output, h.scales()[row])
                                                     : wide_parameters(h, panel, group, output);
  return (h.bits == 4 ? value * scale : (value * scale + 64) >> 7) + offset;
}

// Of narrow 8-bit codes: is there a kernel for the stretch, and does no code leave its byte?
inline bool good_stretch(const PackedHeader& h) {
  if (h.width == 5 ? h.stretch != 4 && h.stretch != 5 : h.stretch != 2) return false;
  return h.base > 0 && h.stretch * ((1 << h.width) - 1) + h.base <= 255;
}

// The header of packed weights that a caller hands in, or null if they are not what this library writes.
inline const PackedHeader* open_packed(const void* packed) {
  const auto* h = static_cast<const PackedHeader*>(packed);
  PackedHeader want;
  if (!h || !aligned64(h) || std::memcmp(h->magic, "SFPACK3", 8)) return nullptr;
  const Narrowing narrow{h->width, h->scale_bits};
  if (describe(h->n, h->k, h->bits, h->limbs, h->group, h->with_offsets, narrow, want) != kOk) return nullptr;
  if (h->bits == 8 && h->has_narrow_codes() && !good_stretch(*h)) return nullptr;
  return h->bytes == want.bytes && h->panel_bytes == want.panel_bytes && h->panels == want.panels ? h : nullptr;
}

}  // namespace sf
