// Panels that are narrower in memory than what kernels multiply (pack.h: width, scale_bits): a tile's codes and the
// parameters of 256 columns are expanded into a buffer that stays in L1, just before they are multiplied.
#pragma once
#include <cfloat>
#include <utility>

#include "dot.h"  // of the variant
#include "kernels/pack.h"

namespace sf {

// How far ahead of the reader the codes are asked for. The hardware's own prefetcher stops at pages.
inline constexpr int64_t kAhead = 4096;
// Always inlined: gcc takes a function that only prefetches for one without effect, and may drop calls of it.
[[gnu::always_inline]] inline void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }

namespace compact {

inline Ints load_ints(const uint8_t* p) { return loadi(reinterpret_cast<const int32_t*>(p)); }
inline void store_ints(uint8_t* p, const Ints& a) { storei(reinterpret_cast<int32_t*>(p), a); }
inline Ints bytes4(uint32_t byte) { return set1i(static_cast<int32_t>(byte * 0x01010101u)); }

// f<I>() for the lines of a tile: the shifts are constants.
template <class F>
[[gnu::always_inline]] inline void each_line_of_tile(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (f.template operator()<I>(), ...);
  }(std::make_integer_sequence<int, kTileLines>{});
}

// Line I of a plane of Width bits: half 0's in the low nibbles, half 1's in the high ones.
template <int Width, int I>
[[gnu::always_inline]] inline Ints plane_line(const uint8_t* plane) {
  constexpr int kEach = 4 / Width, kShift = I % kEach * Width;
  const Ints bits = load_ints(plane + I / kEach * kLine);
  if constexpr (Width == 4) return bits;
  const Ints mask = bytes4(0x11 * ((1 << Width) - 1));
  if constexpr (kShift == 0) return andi(bits, mask);
  else return andi(shr<kShift>(bits), mask);
}

// 4-bit codes of 1, 2 or 3 bits.
template <int Width>
[[gnu::noinline]] void expand_nibbles(const uint8_t* tile, uint8_t* out) {
  constexpr int kLow = Width == 1 ? 1 : 2;
  each_line_of_tile([&]<int I>() {
    Ints codes = plane_line<kLow, I>(tile);
    if constexpr (Width == 3) codes = addi(codes, shl<2>(plane_line<1, I>(tile + plane_bytes(2))));
    store_ints(out + I * kLine, codes);
  });
}

template <int Stretch>
inline Ints stretched(const Ints& codes) {
  if constexpr (Stretch == 5) return addi(shl<2>(codes), codes);
  else return shl<Stretch / 2>(codes);
}

// 8-bit codes of 4 bits and High more. No byte exceeds 255 on the way, so four can be computed in a lane of 32 bits.
template <int High, int Stretch>
[[gnu::noinline]] void expand_bytes(const uint8_t* tile, int32_t base, uint8_t* out) {
  const Ints low_mask = bytes4(15), high_mask = bytes4(((1 << High) - 1) << 4), more = bytes4(base), sign = bytes4(128);
  const auto finish = [&](const Ints& codes) { return xori(addi(stretched<Stretch>(codes), more), sign); };
  each_line_of_tile([&]<int I>() {
    const Ints low = plane_line<4, I>(tile), high = plane_line<High, I>(tile + kPlaneBytes);
    store_ints(out + I * kLine, finish(addi(andi(low, low_mask), andi(shl<4>(high), high_mask))));
    store_ints(out + kPlaneBytes + I * kLine, finish(addi(andi(shr<4>(low), low_mask), andi(high, high_mask))));
  });
}

inline void expand_codes(const PackedHeader& h, const uint8_t* tile, uint8_t* out) {
  switch (h.width) {
    case 1:
      return expand_nibbles<1>(tile, out);
    case 2:
      return expand_nibbles<2>(tile, out);
    case 3:
      return expand_nibbles<3>(tile, out);
    case 5:
      return h.stretch == 5 ? expand_bytes<1, 5>(tile, h.base, out) : expand_bytes<1, 4>(tile, h.base, out);
    default:
      return expand_bytes<2, 2>(tile, h.base, out);
  }
}

// Sixteen half-precision numbers, all finite. A multiplication moves the exponent, for subnormal numbers too.
inline Lanes load_halves(const uint8_t* p) {
  const Ints words = load_words(p);
  const Lanes magnitude = mul(as_float(shl<13>(andi(words, set1i(0x7FFF)))), set1(0x1p112f));
  return as_float(xori(as_int(magnitude), andi(words, set1i(INT32_MIN))));
}

// The integer of the I-th of four groups: a byte with its sign, or a nibble of the byte.
template <int Bits, int I, bool High>
inline Lanes integer(const Ints& four) {
  if constexpr (Bits == 8) return to_float(sar<24>(shl<24 - 8 * I>(four)));
  constexpr int kShift = 8 * I + (High ? 4 : 0);
  if constexpr (kShift == 0) return to_float(andi(four, set1i(15)));
  else return to_float(andi(shr<kShift>(four), set1i(15)));
}

// M and Z of 256 columns, as a panel has them that is not narrow. inverse: 1 / row scale * 2^power.
template <int Bits, bool WithOffsets>
[[gnu::noinline]] void expand_scales(const PackedHeader& h, const uint8_t* super, const Lanes (&inverse)[2],
                                     uint8_t* out) {
  constexpr int64_t kHalfBytes = WithOffsets ? 64 : 32;
  const int64_t lines = h.num_super_lines();
  const uint8_t* scales = super + (WithOffsets ? 2 : 1) * kPanel * 2;
  const uint8_t* offsets = Bits == 8 ? scales + lines * 2 * kLine : scales;
  const Lanes factor = set1(h.factor()), centre = set1(static_cast<float>(h.centre));
  for (int half = 0; half < 2; ++half) {
    const Lanes d = mul(load_halves(super + half * 2 * kHalf), inverse[half]);
    const Lanes e = WithOffsets ? mul(load_halves(super + 2 * kPanel + half * 2 * kHalf), inverse[half]) : zero();
    for (int64_t i = 0; i < lines; ++i) {
      const Ints s = load_ints(scales + (i * 2 + half) * kLine), m = load_ints(offsets + (i * 2 + half) * kLine);
      const auto group = [&]<int I>() {
        uint8_t* to = out + ((4 * i + I) * 2 + half) * kHalfBytes;
        const Lanes step = mul(d, integer<Bits, I, false>(s));
        store_words(to, to_int(mul(step, factor)));
        if constexpr (WithOffsets)
          store_words(to + 32, to_int(add(mul(e, integer<Bits, I, true>(m)), mul(centre, step))));
      };
      group.template operator()<0>();
      group.template operator()<1>();
      group.template operator()<2>();
      group.template operator()<3>();
    }
  }
}

// A pointer so many bytes before the buffer: what is read with it lies that much further.
inline const uint8_t* before(const uint8_t* buffer, int64_t bytes) {
  return reinterpret_cast<const uint8_t*>(reinterpret_cast<uintptr_t>(buffer) - static_cast<uintptr_t>(bytes));
}

}  // namespace compact

// One panel of such weights.
class CompactPanel {
 public:
  CompactPanel(const PackedHeader& h, int64_t panel) : h_(&h), panel_(h.panel(panel)) {
    if (!h.has_narrow_scales()) return;
    for (int half = 0; half < 2; ++half) {
      const Lanes scales = load(h.scales() + panel * kPanel + half * kHalf);
      const Lanes inverse = div(set1(1.0f), max(scales, set1(FLT_MIN)));  // outputs that only fill the panel have zeros
      inverse_[half] = mul(inverse, set1(h.two_to_power()));
    }
  }

  // Expands the tile that begins with this line. Then codes and parameters are where those of the whole panel would
  // begin, and may be read for the lines of this tile. to_next: bytes to the panel that is read after this one.
  void enter(int64_t line, int64_t to_next, const uint8_t*& codes, const uint8_t*& parameters) {
    if (h_->has_narrow_scales()) enter_scales(line, to_next, parameters);
    if (!h_->has_narrow_codes()) return;
    const int64_t tile = line / kTileLines, at = tile * h_->tile_bytes();
    prefetch_codes(at + kAhead, to_next);
    compact::expand_codes(*h_, panel_ + h_->codes + at, codes_);
    codes = compact::before(codes_, tile * h_->full_tile_bytes());
  }
  // The same for narrow scales alone.
  void enter_scales(int64_t line, int64_t to_next, const uint8_t*& parameters) {
    const int64_t super = line / (kTileLines * kSuperTiles);
    if (super == super_) return;
    enter_super(super, to_next);
    parameters = compact::before(parameters_, super * h_->super_groups() * h_->group_bytes());
  }

 private:
  void enter_super(int64_t super, int64_t to_next) {
    super_ = super;
    const int64_t bytes = h_->super_bytes();
    const uint8_t* at = panel_ + super * bytes;
    const uint8_t* next = super + 1 < h_->k / kSuper ? at + bytes : panel_ + to_next;
    for (int64_t i = 0; i < bytes; i += kLine) prefetch(next + i);
    if (h_->scale_bits == 4) return compact::expand_scales<4, true>(*h_, at, inverse_, parameters_);
    h_->with_offsets ? compact::expand_scales<8, true>(*h_, at, inverse_, parameters_)
                     : compact::expand_scales<8, false>(*h_, at, inverse_, parameters_);
  }
  // Inlined as prefetch is: calls of it were dropped.
  [[gnu::always_inline]] inline void prefetch_codes(int64_t at, int64_t to_next) const {
    const int64_t all = h_->num_tiles() * h_->tile_bytes();
    const uint8_t* from = panel_ + h_->codes + (at < all ? at : at - all + to_next);
    for (int64_t i = 0; i < h_->tile_bytes(); i += kLine) prefetch(from + i);
  }

  const PackedHeader* h_;
  const uint8_t* panel_;
  int64_t super_ = -1;  // whose parameters are in the buffer
  Lanes inverse_[2];
  alignas(64) uint8_t parameters_[kSuper / 16 * 128];
  alignas(64) uint8_t codes_[2 * kPlaneBytes];
};

}  // namespace sf
