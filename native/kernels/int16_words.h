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

// The longest pieces that no weights can make overflow, by the sums of the absolute values of a row's lines.
template <int Lines>
class PieceLines {
 public:
  // Of the lines of the next tile.
  void add(const Ints& absolutes) {
    storei(sums_ + count_, absolutes);
    count_ += kTileLines;
  }
  int32_t lines() const {
    int32_t sums[Lines];
    std::memcpy(sums, sums_, sizeof sums);
    for (int lines = 2;; lines *= 2) {
      int32_t largest = 0;
      for (int i = 0; i < Lines / lines; ++i) largest = std::max(largest, sums[i] = sums[2 * i] + sums[2 * i + 1]);
      if (lines > 2 && int64_t(largest) * kLargestWeight >= int64_t(1) << 31) return lines / 2;
      if (lines == Lines) return lines;
    }
  }

 private:
  int32_t sums_[Lines] = {};
  int count_ = 0;
};

// The pairs of words of a row's tile, [columns 0 and 2, columns 1 and 3][line]. Returns the sums of each line's
// absolute values.
inline Ints word_pairs(const int8_t* x, int64_t limb_stride, int32_t* out) {
  int32_t fours[2][kTileLines];
  for (int limb = 0; limb < 2; ++limb) std::memcpy(fours[limb], x + limb * limb_stride, sizeof fours[limb]);
  const Ints limbs[2] = {loadi(fours[0]), loadi(fours[1])};
  const auto number = [&]<int Column>() {
    const auto byte = [](const Ints& four) { return sar<24>(shl<24 - 8 * Column>(four)); };
    return addi(shl<7>(byte(limbs[0])), byte(limbs[1]));
  };
  const auto pair = [](const Ints& low, const Ints& high) { return addi(andi(low, set1i(0xFFFF)), shl<16>(high)); };
  const Ints numbers[4] = {number.template operator()<0>(), number.template operator()<1>(),
                           number.template operator()<2>(), number.template operator()<3>()};
  storei(out, pair(numbers[0], numbers[2]));
  storei(out + kTileLines, pair(numbers[1], numbers[3]));
  Ints absolutes = set1i(0);
  for (const Ints& x4 : numbers) absolutes = addi(absolutes, subi(xori(x4, sar<31>(x4)), sar<31>(x4)));
  return absolutes;
}

// A row as pairs of words, tile by tile; then the lines of its pieces.
struct WordRow {
  static int64_t count(const Problem& p) { return p.lines() * 2 + 1; }
  static int64_t at(int64_t line) { return line / kTileLines * (2 * kTileLines) + line % kTileLines; }

  static void prepare(const Problem& p, int64_t row, int32_t* out) {
    int32_t least = kTileLines;
    for (int64_t line = 0; line < p.lines(); line += kTileLines, out += 2 * kTileLines) {
      PieceLines<kTileLines> pieces;
      pieces.add(word_pairs(p.row(row) + 4 * line, p.x.stride, out));
      least = std::min(least, pieces.lines());
    }
    *out = least;
  }
};

// Some prepared rows, `stride` numbers apart: what pieces suit them all.
template <int Rows>
int32_t piece_lines(const int32_t* rows, int64_t stride) {
  int32_t least = kTileLines;
  for (int r = 0; r < Rows; ++r) least = std::min(least, rows[(r + 1) * stride - 1]);
  return least;
}

}  // namespace sf
