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
#pragma once
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

struct PackedHeader {
  char magic[8];  // "SFPACK2"
  int64_t n, k, bytes;
  int64_t row_scales, panels;  // byte offsets from the header
  int64_t panel_bytes, codes;  // size of a panel, and where in it the codes start
  int32_t bits, limbs, group, with_offsets;
  alignas(16) uint8_t table[16];  // one limb: shifted to start at zero
  uint8_t unused[256 - 8 - 7 * 8 - 4 * 4 - 16];

  int64_t num_panels() const { return divide_up(n, kPanel); }
  int64_t num_tiles() const { return divide_up(k, kTile); }
  int64_t num_groups() const { return group ? divide_up(k, group) : 0; }
  // Bytes of one group's parameters of one half, and of one tile's codes.
  int64_t half_parameter_bytes() const { return limbs == 1 ? 32 : with_offsets ? 64 : 32; }
  int64_t group_bytes() const { return 2 * half_parameter_bytes(); }
  int64_t tile_bytes() const { return bits == 8 ? 2 * kPlaneBytes : kPlaneBytes; }
  // Is table[code] = code + some constant?
  bool is_linear() const {
    if (bits != 4) return false;
    for (int i = 1; i < 16; ++i)
      if (static_cast<int8_t>(table[i]) != static_cast<int8_t>(table[0]) + i) return false;
    return true;
  }
  const uint8_t* panel(int64_t p) const { return reinterpret_cast<const uint8_t*>(this) + panels + p * panel_bytes; }
  const float* scales() const {
    return reinterpret_cast<const float*>(reinterpret_cast<const uint8_t*>(this) + row_scales);
  }
};
static_assert(sizeof(PackedHeader) == 256);

inline constexpr int kLargestWeight = 127 * 128 + 63;  // of two limbs

// A header with every size filled in, or an error for a combination that has no kernel.
inline Error describe(int64_t n, int64_t k, int32_t bits, int32_t limbs, int32_t group, int32_t with_offsets,
                      PackedHeader& h) {
  SF_REQUIRE(n > 0 && n < (int64_t(1) << 31) && k > 0 && k < kMaxColumns, kBadShape);
  SF_REQUIRE((bits == 4 || bits == 8) && (limbs == 1 || limbs == 2), kBadOption);
  const bool plain = bits == 8 && limbs == 1;
  SF_REQUIRE(plain ? group == 0 : group == 16 || group == 32 || (group > 0 && group % kTile == 0), kBadOption);
  SF_REQUIRE(!(plain && with_offsets), kBadOption);
  h = PackedHeader{};
  std::memcpy(h.magic, "SFPACK2", 8);
  h.n = n, h.k = k, h.bits = bits, h.limbs = limbs, h.group = group, h.with_offsets = with_offsets;
  h.codes = align64(h.num_groups() * h.group_bytes());
  h.panel_bytes = h.codes + h.num_tiles() * h.tile_bytes();
  h.row_scales = sizeof(PackedHeader);
  h.panels = align64(h.row_scales + h.num_panels() * kPanel * 4);
  h.bytes = h.panels + h.num_panels() * h.panel_bytes;
  return kOk;
}

// May rows first to first + rows of n be written by themselves? Whole panels only.
inline bool whole_panels(int64_t n, int64_t first, int64_t rows) {
  return first >= 0 && first % kPanel == 0 && rows > 0 && rows <= n - first &&
         (rows % kPanel == 0 || first + rows == n);
}

// One weight's integer, read back: for single rows of a packed table.
inline int weight_at(const PackedHeader& h, int64_t output, int64_t column) {
  const uint8_t* panel = h.panel(output / kPanel);
  const int64_t half = output % kPanel / kHalf, lane = output % kHalf, line = column / 4, at = lane * 4 + column % 4;
  const uint8_t* codes = panel + h.codes;
  const uint8_t* parameters =
      h.group ? panel + column / h.group * h.group_bytes() + half * h.half_parameter_bytes() : nullptr;
  int value;
  if (h.bits == 8) {
    value = static_cast<int8_t>(codes[(line / kTileLines * 2 + half) * kPlaneBytes + line % kTileLines * kLine + at]);
  } else {
    const uint8_t entry = h.table[codes[line * kLine + at] >> (4 * half) & 15];
    if (h.limbs == 1) return static_cast<int8_t>(entry * parameters[lane] + parameters[16 + lane]);
    value = static_cast<int8_t>(entry);
  }
  if (!parameters) return value;
  int16_t scale, offset = 0;
  std::memcpy(&scale, parameters + 2 * lane, 2);
  if (h.with_offsets) std::memcpy(&offset, parameters + 32 + 2 * lane, 2);
  return (h.bits == 4 ? value * scale : (value * scale + 64) >> 7) + offset;
}

// The header of packed weights that a caller hands in, or null if they are not what this library writes.
inline const PackedHeader* open_packed(const void* packed) {
  const auto* h = static_cast<const PackedHeader*>(packed);
  PackedHeader want;
  if (!h || !aligned64(h) || std::memcmp(h->magic, "SFPACK2", 8)) return nullptr;
  if (describe(h->n, h->k, h->bits, h->limbs, h->group, h->with_offsets, want) != kOk) return nullptr;
  return h->bytes == want.bytes && h->panel_bytes == want.panel_bytes && h->panels == want.panels ? h : nullptr;
}

}  // namespace sf
