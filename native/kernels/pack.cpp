#include <algorithm>
#include <atomic>

#include "core/context.h"
#include "kernels/node_panels.h"
#include "kernels/panel.h"

namespace sf {
namespace {

// One panel being written: its 32 outputs of the source, beyond its rows read as zero codes.
struct Panel {
  const sf_pack_args& args;
  const PackedHeader& header;
  uint8_t* bytes;
  int64_t first;  // row of the source

  int64_t outputs() const { return std::min<int64_t>(kPanel, args.rows - first); }
  uint8_t code(int64_t output, int64_t column) const {
    return output < outputs() && column < args.k ? static_cast<uint8_t>(args.codes[(first + output) * args.k + column])
                                                 : 0;
  }
};

void write_codes(const Panel& p) {
  uint8_t codes[kPanel][kTile] = {};
  uint8_t* tile = p.bytes + p.header.codes;
  for (int64_t column = 0; column < p.args.k; column += kTile, tile += p.header.tile_bytes()) {
    const int64_t count = std::min<int64_t>(kTile, p.args.k - column);
    for (int64_t output = 0; output < p.outputs(); ++output) {
      std::memcpy(codes[output], p.args.codes + (p.first + output) * p.args.k + column, count);
      std::memset(codes[output] + count, 0, kTile - count);
    }
    write_tile(codes[0], kTile, p.header.bits, tile);
  }
}

bool fits_two_limbs(int weight) { return weight >= -kLargestWeight && weight <= kLargestWeight; }

// Does every weight of the group land in its limbs, and (one limb) no product exceed a byte?
bool fits(const Panel& p, int64_t output, int64_t group, int scale, int offset, int least) {
  if (p.args.bits == 4 && p.args.limbs == 2)
    return std::all_of(p.args.table, p.args.table + 16,
                       [&](int value) { return fits_two_limbs(value * scale + offset); });
  const int64_t end = std::min(p.args.k, (group + 1) * p.args.group);
  for (int64_t column = group * p.args.group; column < end; ++column) {
    const int8_t code = static_cast<int8_t>(p.code(output, column));
    const int value = p.args.bits == 4 ? p.args.table[code & 15] : code;
    if (p.args.limbs == 1) {
      const int weight = value * scale + offset, product = (value - least) * scale;
      if (weight < -127 || weight > 127 || product < 0 || product > 255) return false;
    } else if (!fits_two_limbs(((value * scale + 64) >> 7) + offset)) {
      return false;
    }
  }
  return true;
}

// Group parameters of one output; false where a weight does not fit its limbs.
bool write_group(const Panel& p, int64_t group, int output, int least) {
  const int64_t source = (p.first + output) * p.header.num_groups() + group;
  const bool there = output < p.outputs();
  const int scale = there ? p.args.scales[source] : 0;
  const int offset = there && p.args.offsets ? p.args.offsets[source] : 0;
  if (there && !fits(p, output, group, scale, offset, least)) return false;
  uint8_t* half = p.bytes + group * p.header.group_bytes() + output / kHalf * p.header.half_parameter_bytes();
  const int lane = output % kHalf;
  if (p.header.limbs == 1) {
    half[lane] = static_cast<uint8_t>(scale);
    half[16 + lane] = static_cast<uint8_t>(offset + scale * least);
  } else {
    const int16_t wide[2] = {static_cast<int16_t>(scale), static_cast<int16_t>(offset)};
    std::memcpy(half + 2 * lane, &wide[0], 2);
    if (p.header.with_offsets) std::memcpy(half + 32 + 2 * lane, &wide[1], 2);
  }
  return true;
}

bool write_panel(const Panel& p, int least) {
  std::memset(p.bytes, 0, p.header.codes);
  for (int64_t group = 0; group < p.header.num_groups(); ++group)
    for (int output = 0; output < kPanel; ++output)
      if (!write_group(p, group, output, least)) return false;
  write_codes(p);
  return true;
}

bool codes_in_range(const sf_pack_args& args) {
  const int64_t count = args.rows * args.k;
  if (args.bits == 4) return std::all_of(args.codes, args.codes + count, [](int8_t c) { return c >= 0 && c < 16; });
  return std::all_of(args.codes, args.codes + count, [](int8_t c) { return c != -128; });
}

}  // namespace

Error op_pack(Context& context, sf_pack_args& args) {
  SF_REQUIRE(args.codes && args.row_scales && args.packed, kNullPointer);
  PackedHeader header;
  const int32_t with_offsets = args.offsets != nullptr;
  const Narrowing none{args.bits, 16};
  if (const Error error = describe(args.n, args.k, args.bits, args.limbs, args.group, with_offsets, none, header))
    return error;
  SF_REQUIRE(args.packed_bytes >= header.bytes && whole_panels(args.n, args.first, args.rows), kBadShape);
  SF_REQUIRE(aligned64(args.packed), kMisaligned);
  SF_REQUIRE((args.group == 0) == (args.scales == nullptr), kNullPointer);
  SF_REQUIRE((args.bits == 4) == (args.table != nullptr), kNullPointer);
  SF_REQUIRE(codes_in_range(args), kOutOfRange);
  const int least = args.bits == 4 && args.limbs == 1 ? *std::min_element(args.table, args.table + 16) : 0;
  if (args.table)
    for (int i = 0; i < 16; ++i) header.table[i] = static_cast<uint8_t>(args.table[i] - least);

  auto* bytes = static_cast<uint8_t*>(args.packed);
  std::memcpy(bytes, &header, sizeof(header));
  std::memcpy(bytes + header.row_scales + args.first * sizeof(float), args.row_scales, args.rows * sizeof(float));
  std::atomic<bool> good{true};
  const int64_t first_panel = args.first / kPanel;
  context.pool.run(divide_up(args.rows, kPanel), [&](int64_t p, int) {
    const Panel panel{args, header, bytes + header.panels + (first_panel + p) * header.panel_bytes, p * kPanel};
    if (!write_panel(panel, least)) good = false;
  });
  return good ? kOk : kOutOfRange;
}

}  // namespace sf

extern "C" int64_t sf_node_end(sf_context* context, int32_t node, int64_t n, int64_t bytes) {
  const int64_t num_panels = sf::divide_up(n, sf::kPanel), first = sf::panels_begin(n);
  if (node < 0 || static_cast<size_t>(node) >= context->pool.num_nodes() || n <= 0 || bytes <= first) return -1;
  return first + (bytes - first) / num_panels * sf::node_panels(context->pool, node, num_panels).second;
}

extern "C" int64_t sf_packed_bytes(int64_t n, int64_t k, int32_t bits, int32_t limbs, int32_t group,
                                   int32_t with_offsets, int32_t width, int32_t scale_bits) {
  sf::PackedHeader header;
  const bool good = sf::describe(n, k, bits, limbs, group, with_offsets, {width, scale_bits}, header) == sf::kOk;
  return good ? header.bytes : -1;
}
