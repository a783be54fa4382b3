// Rows of two limbs as 16-bit words, whose products with words of weights are added up in pieces.
//
// The sum of a piece, some lines of a tile, fits an int32: of two lines (8 products) for any numbers, of more where the
// row's own say so. Of the pieces' sum V, T = V mod 2^32 and H = sum of (piece >> 16) are kept: V lies between 2^16 H
// and 2^16 (H + pieces), so that r = (T - 2^16 H) mod 2^32 is what is missing: V = 2^16 H + r.
#pragma once
#include <algorithm>

#include "kernels/linear.h"

namespace sf {

static_assert(kMaxColumns / 8 <= 1 << 15);  // pieces: r is less than 2^31

inline Doubles add_pieces(const Doubles& sum, const Ints& total, const Ints& high) {
  return add_scaled(add_scaled(sum, high, 65536.0), subi(total, shl<16>(high)), 1.0);
}

// The longest pieces that no weights can make overflow, by the sums of a row's absolute values.
class PieceLines {
 public:
  // Of the lines of a tile.
  void add(const Ints& absolutes) {
    int32_t sums[kTileLines];
    storei(sums, absolutes);
    for (int level = 0, count = kTileLines / 2; count; ++level, count /= 2)
      for (int i = 0; i < count; ++i) {
        sums[i] = sums[2 * i] + sums[2 * i + 1];
        largest_[level] = std::max(largest_[level], sums[i]);
      }
  }
  int32_t lines() const {
    int level = 0;
    while (level + 1 < kLevels && int64_t(largest_[level + 1]) * kLargestWeight < int64_t(1) << 31) ++level;
    return 2 << level;
  }

 private:
  static constexpr int kLevels = 4;  // 2, 4, 8, 16 lines
  int32_t largest_[kLevels] = {};
};

// A row as pairs of words, [tile][columns 0 and 2, columns 1 and 3][line]; then the lines of its pieces.
struct WordRow {
  static int64_t count(const Problem& p) { return p.lines() * 2 + 1; }
  static int64_t at(int64_t line) { return line / kTileLines * (2 * kTileLines) + line % kTileLines; }

  static void prepare(const Problem& p, int64_t row, int32_t* out) {
    PieceLines pieces;
    for (int64_t line = 0; line < p.lines(); line += kTileLines, out += 2 * kTileLines)
      pieces.add(prepare_tile(p.row(row) + 4 * line, p.x.stride, out));
    *out = pieces.lines();
  }
  // Returns the sums of each line's absolute values.
  static Ints prepare_tile(const int8_t* x, int64_t limb_stride, int32_t* out) {
    int32_t fours[2][kTileLines];
    for (int limb = 0; limb < 2; ++limb) std::memcpy(fours[limb], x + limb * limb_stride, sizeof fours[limb]);
    const Ints limbs[2] = {loadi(fours[0]), loadi(fours[1])};
    const Ints numbers[4] = {number<0>(limbs), number<1>(limbs), number<2>(limbs), number<3>(limbs)};
    storei(out, pair(numbers[0], numbers[2]));
    storei(out + kTileLines, pair(numbers[1], numbers[3]));
    Ints absolutes = set1i(0);
    for (const Ints& x4 : numbers) absolutes = addi(absolutes, subi(xori(x4, sar<31>(x4)), sar<31>(x4)));
    return absolutes;
  }
  template <int Column>
  static Ints number(const Ints (&limbs)[2]) {
    const auto byte = [](const Ints& four) { return sar<24>(shl<24 - 8 * Column>(four)); };
    return addi(shl<7>(byte(limbs[0])), byte(limbs[1]));
  }
  static Ints pair(const Ints& low, const Ints& high) { return addi(andi(low, set1i(0xFFFF)), shl<16>(high)); }
};

// Some prepared rows, `stride` numbers apart: what pieces suit them all.
template <int Rows>
int32_t piece_lines(const int32_t* rows, int64_t stride) {
  int32_t least = kTileLines;
  for (int r = 0; r < Rows; ++r) least = std::min(least, rows[(r + 1) * stride - 1]);
  return least;
}

}  // namespace sf
