// Weights as files hold them, straight into panels: bit fields for codes, a float scale (and offset) per group.
//
//   u = low field | high field << low.width             the code as it lies in its block
//   t = table[u], or (8-bit codes) stretch * int8(u + add), no less than -127
//   unit = max over groups and both ends of the span |scale * end + offset| / 16256, at least the smallest normal float
//   M = round(scale / unit * (fraction / stretch))     Z = round(offset / unit + centre * (scale / unit))
//       where fraction is 128 for 8-bit codes, 1 where there is a table
//
// Scales and offsets may be products, scale = d * s and offset = e * m: then scale / unit is d * (1 / unit) * s. Where
// scale_bits is 8 or 4 they stay products: compact.h makes M and Z of them.
//
// all in float32, round to nearest even; formats/ggml.py does the same in numpy. The span bounds every weight, so that
// all fit two limbs and every M fits int16 (the caller's stretch sees to that).
#include <algorithm>
#include <atomic>
#include <bit>
#include <cfloat>
#include <cmath>

#include "core/context.h"
#include "kernels/panel.h"

namespace sf {
namespace {

constexpr int kChunk = 256;  // columns unpacked at a time: whole blocks, whole tiles

bool good_field(const sf_bit_field& f, int block, int block_bytes) {
  if (f.width != 1 && f.width != 2 && f.width != 4 && f.width != 8) return false;
  const int bytes = block * f.width / 8;
  return f.run > 0 && bytes % f.run == 0 && f.offset >= 0 && f.offset <= block_bytes - bytes;
}

// One field of a block, written or ored into its codes: runs of bytes, each holding 8 / width runs of codes, lowest
// bits first.
template <bool Writes>
void unpack(const uint8_t* bytes, const sf_bit_field& f, int block, int left, uint8_t* __restrict codes) {
  const uint64_t mask = 0x0101010101010101u * ((1u << f.width) - 1);
  const int run = f.run, width = f.width;
  for (uint8_t* end = codes + block; codes < end; bytes += run)
    for (int shift = 0; shift < 8; shift += width, codes += run) {
      int i = 0;
      for (; i + 8 <= run; i += 8) {
        uint64_t eight, already = 0;
        std::memcpy(&eight, bytes + i, 8);
        if (!Writes) std::memcpy(&already, codes + i, 8);
        already |= (eight >> shift & mask) << left;
        std::memcpy(codes + i, &already, 8);
      }
      for (; i < run; ++i)
        codes[i] = static_cast<uint8_t>((Writes ? 0 : codes[i]) | (bytes[i] >> shift & mask & 255) << left);
    }
}

void stretch_codes(uint8_t* codes, int count, int add, int stretch) {
  for (int i = 0; i < count; ++i) {
    const int t = static_cast<int8_t>(codes[i] + add) * stretch;
    codes[i] = static_cast<uint8_t>(static_cast<int8_t>(std::max(t, -127)));
  }
}

struct Source {
  const sf_pack_blocks_args& args;
  const PackedHeader& header;

  // `count` columns of one row from a block on, as the kernels' codes.
  void codes(int64_t row, int64_t first_block, int count, uint8_t* out) const {
    const uint8_t* block = args.blocks + row * args.row_stride + first_block * args.block_bytes;
    for (int done = 0; done < count; done += args.block, block += args.block_bytes) {
      unpack<true>(block + args.low.offset, args.low, args.block, 0, out + done);
      if (args.high.width) unpack<false>(block + args.high.offset, args.high, args.block, args.low.width, out + done);
    }
    if (header.width == 8) {
      stretch_codes(out, count, args.add, args.stretch);
    } else {
      for (int i = 0; i < count; ++i) out[i] &= (1 << header.width) - 1;
    }
  }

  // f(group, scale, offset) for the groups of a row, both over the unit.
  template <class F>
  void each_group(int64_t row, float unit, const F& f) const {
    const int64_t groups = header.num_groups();
    int64_t at = row * groups;
    if (!args.super_scales) {
      for (int64_t g = 0; g < groups; ++g, ++at)
        f(g, args.scales[at] / unit, args.offsets ? args.offsets[at] / unit : 0.0f);
      return;
    }
    const int64_t supers = header.k / kSuper, each = kSuper / header.group;
    const float by = 1.0f / unit * std::ldexp(1.0f, args.power);
    for (int64_t s = 0; s < supers; ++s) {
      const float d = finite(args.super_scales[row * supers + s]) * by;
      const float e = args.super_offsets ? finite(args.super_offsets[row * supers + s]) * by : 0.0f;
      for (int64_t g = s * each; g < (s + 1) * each; ++g, ++at)
        f(g, d * static_cast<float>(args.group_scales[at]),
          args.super_offsets ? e * static_cast<float>(args.group_offsets[at]) : 0.0f);
    }
  }
  static float finite(uint16_t half) { return (half & 0x7C00) == 0x7C00 ? NAN : half_to_float(half); }

  // The row's unit; not finite where a scale or offset is not.
  float unit(int64_t row) const {
    int32_t largest = 0;  // floats without their sign order as integers do, with infinities and NaNs on top
    each_group(row, 1.0f, [&](int64_t, float step, float from) {
      largest = std::max(largest, std::bit_cast<int32_t>(std::fabs(step * args.span_low + from)));
      largest = std::max(largest, std::bit_cast<int32_t>(std::fabs(step * args.span_high + from)));
    });
    const float unit = std::bit_cast<float>(largest) / 16256.0f;
    return unit < FLT_MIN ? FLT_MIN : unit;  // in this order: a NaN must stay one
  }
};

struct BlockPanel {
  const Source& source;
  uint8_t* bytes;
  int64_t first;    // row of the source
  int64_t outputs;  // rows that are there; the rest are zero

  bool write(float* row_scales) const {
    const PackedHeader& h = source.header;
    std::memset(bytes, 0, h.codes);
    std::memset(row_scales, 0, kPanel * sizeof(float));
    for (int output = 0; output < outputs; ++output) {
      row_scales[output] = source.unit(first + output);
      if (!(row_scales[output] <= FLT_MAX)) return false;
      source.header.has_narrow_scales() ? write_factors(output) : write_parameters(output, row_scales[output]);
    }
    write_codes();
    return true;
  }

  void write_parameters(int output, float unit) const {
    const sf_pack_blocks_args& args = source.args;
    const PackedHeader& h = source.header;
    const float factor = (h.bits == 8 ? 128.0f : 1.0f) / static_cast<float>(args.stretch),
                centre = static_cast<float>(args.centre);
    uint8_t* at = bytes + output / kHalf * h.half_parameter_bytes() + 2 * (output % kHalf);
    const int64_t group_bytes = h.group_bytes();
    source.each_group(first + output, unit, [&](int64_t g, float step, float from) {
      const int16_t multiplier = static_cast<int16_t>(std::rint(step * factor));
      std::memcpy(at + g * group_bytes, &multiplier, 2);
      if (!h.with_offsets) return;
      const int16_t offset = static_cast<int16_t>(std::rint(from + centre * step));
      std::memcpy(at + g * group_bytes + 32, &offset, 2);
    });
  }

  // Of an output: its number of each super-block, and its integers of each group.
  void write_factors(int output) const {
    const sf_pack_blocks_args& args = source.args;
    const PackedHeader& h = source.header;
    const int64_t supers = h.k / kSuper, each = kSuper / h.group, row = first + output, lines = h.num_super_lines();
    for (int64_t super = 0; super < supers; ++super) {
      uint8_t* at = bytes + super * h.super_bytes();
      std::memcpy(at + 2 * output, args.super_scales + row * supers + super, 2);
      if (args.super_offsets) std::memcpy(at + 2 * kPanel + 2 * output, args.super_offsets + row * supers + super, 2);
      at += (1 + h.with_offsets) * kPanel * 2 + output / kHalf * kLine + output % kHalf * 4;
      for (int64_t g = 0; g < each; ++g) {
        const int64_t of = (row * supers + super) * each + g;
        uint8_t* place = at + g / 4 * 2 * kLine + g % 4;
        *place = static_cast<uint8_t>(args.group_scales[of]);
        if (!args.group_offsets) continue;
        if (h.scale_bits == 4) *place = static_cast<uint8_t>((*place & 15) | args.group_offsets[of] << 4);
        else place[lines * 2 * kLine] = static_cast<uint8_t>(args.group_offsets[of]);
      }
    }
  }

  void write_codes() const {
    const PackedHeader& h = source.header;
    alignas(64) uint8_t codes[kPanel][kChunk] = {};
    uint8_t* tile = bytes + h.codes;
    for (int64_t start = 0; start < h.k; start += kChunk) {
      const int count = static_cast<int>(std::min<int64_t>(kChunk, h.k - start));
      const int padded = static_cast<int>(divide_up(count, kTile) * kTile);
      const int64_t block = start / source.args.block;
      for (int output = 0; output < outputs; ++output) {
        source.codes(first + output, block, count, codes[output]);
        std::memset(codes[output] + count, 0, padded - count);
      }
      for (int at = 0; at < padded; at += kTile, tile += h.tile_bytes()) write_tile(codes[0] + at, kChunk, h, tile);
    }
  }
};

Error check(const sf_pack_blocks_args& args, const PackedHeader& header) {
  SF_REQUIRE(args.block > 0 && kChunk % args.block == 0 && args.k % args.block == 0, kBadShape);
  SF_REQUIRE(args.block_bytes > 0 && args.row_stride >= args.k / args.block * args.block_bytes, kBadShape);
  SF_REQUIRE(whole_panels(args.n, args.first, args.rows) && args.k % args.group == 0, kBadShape);
  SF_REQUIRE(good_field(args.low, args.block, args.block_bytes), kBadOption);
  SF_REQUIRE(args.high.width == 0 || good_field(args.high, args.block, args.block_bytes), kBadOption);
  SF_REQUIRE(args.low.width + args.high.width <= 8 && args.stretch > 0, kBadOption);
  SF_REQUIRE(args.power >= -16 && args.power <= 16, kBadOption);
  SF_REQUIRE(!header.has_narrow_codes() || header.bits == 4 || good_stretch(header), kBadOption);
  SF_REQUIRE(args.packed_bytes >= header.bytes, kBadShape);
  SF_REQUIRE(aligned64(args.packed), kMisaligned);
  return kOk;
}

}  // namespace

Error op_pack_blocks(Context& context, sf_pack_blocks_args& args) {
  const bool factored = args.super_scales != nullptr;
  SF_REQUIRE(args.blocks && args.packed && (factored ? args.group_scales != nullptr : args.scales != nullptr),
             kNullPointer);
  SF_REQUIRE((args.super_offsets == nullptr) == (args.group_offsets == nullptr), kNullPointer);
  SF_REQUIRE((factored || args.scale_bits == 16) && factored == !args.scales, kBadOption);
  SF_REQUIRE(factored ? !args.offsets : !args.super_offsets, kBadOption);
  SF_REQUIRE(!factored || (args.k % kSuper == 0 && kSuper % args.group == 0), kBadShape);
  PackedHeader header;
  const int32_t bits = args.table ? 4 : 8, with_offsets = args.offsets || args.super_offsets;
  const Narrowing narrow{args.width, args.scale_bits};
  if (const Error error = describe(args.n, args.k, bits, 2, args.group, with_offsets, narrow, header)) return error;
  if (header.has_narrow_codes() || header.has_narrow_scales())
    header.stretch = args.stretch, header.centre = args.centre, header.base = 128 + args.stretch * args.add,
    header.power = args.power;
  if (const Error error = check(args, header)) return error;
  if (args.table) std::memcpy(header.table, args.table, 16);

  auto* bytes = static_cast<uint8_t*>(args.packed);
  std::memcpy(bytes, &header, sizeof(header));
  auto* row_scales = reinterpret_cast<float*>(bytes + header.row_scales) + args.first;
  const int64_t first_panel = args.first / kPanel;
  const Source source{args, header};
  std::atomic<bool> good{true};
  context.pool.run(divide_up(args.rows, kPanel), [&](int64_t p, int) {
    uint8_t* at = bytes + header.panels + (first_panel + p) * header.panel_bytes;
    const BlockPanel panel{source, at, p * kPanel, std::min<int64_t>(kPanel, args.rows - p * kPanel)};
    if (!panel.write(row_scales + p * kPanel)) good = false;
  });
  return good ? kOk : kOutOfRange;
}

}  // namespace sf
