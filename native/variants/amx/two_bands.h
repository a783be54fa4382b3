// 17 to 32 rows of two limbs times weights of two limbs: half a panel at a time, whose six sums (three for each of two
// bands) stay in the tiles over the whole depth.
#pragma once
#include "tile_products.h"
#include "tile_supply.h"

namespace sf::tiles {

// Two bands of as many rows, since they share a tile: of an odd number the middle row is in both, and finished once.
struct TwoBands {
  int64_t each, second;  // rows of a band, where the second starts

  explicit TwoBands(int64_t rows) : each(divide_up(rows, 2)), second(rows - each) {}
};

// Half a panel's sums, finished a row at a time in the shadow of the next half's products.
struct HalfFinisher {
  const TwoBands bands;
  const int64_t rows;
  Sums<3> sums[2][32];  // the first band's from 0 on, the second's from 16 on
  int current = 0, half = 0;
  std::optional<PanelEnd> end;
  int64_t done;

  explicit HalfFinisher(const Problem& p) : bands(p.rows), rows(p.rows), done(p.rows) {}

  void start(const Problem& p, int64_t half_panel) {
    finish();
    current ^= 1, half = static_cast<int>(half_panel % 2), done = 0;
    end.emplace(p, half_panel / 2);
    Sums<3>* s = sums[current];
    const int64_t at = half * kHalf, stride = sizeof(*s);
    _tile_stored(0, s->k[0] + at, stride);
    _tile_stored(1, s->k[1] + at, stride);
    _tile_stored(2, s->k[2] + at, stride);
    _tile_stored(3, s[16].k[0] + at, stride);
    _tile_stored(4, s[16].k[1] + at, stride);
    _tile_stored(5, s[16].k[2] + at, stride);
  }
  void step() {
    if (done == rows) return;
    const int64_t at = done < bands.each ? done : 16 + done - bands.second;
    finish_half<2>(*end, done++, half, sums[current][at]);
  }
  void finish() {
    while (done < rows) step();
  }
};

template <class Maker>
void run_two_bands(const Problem& p, const Maker& source, const Share& share, uint8_t* scratch) {
  using Source = HalfSource<decltype(source(0))>;
  const auto half_source = [&](int64_t half_panel) { return Source{source(half_panel / 2), half_panel % 2 == 1}; };
  const Share halves{2 * share.first_panel, 2 * share.last_panel, share.first_row, share.last_row};
  Supply<Source> supply(p, scratch);
  HalfFinisher finisher(p);
  configure(static_cast<int>(finisher.bands.each), 7);
  each_chunk(p, half_source, halves, supply, 1, [&](const Chunk& c, const uint8_t* planes) {
    if (c.opens) clear_sums<3>();
    const int8_t *first = p.row(0) + c.first * kTile, *second = p.row(finisher.bands.second) + c.first * kTile;
    multiply_two_bands(first, second, p.x.stride, 2 * p.x.stride, planes, c.tiles, finisher, supply);
    if (c.closes) finisher.start(p, c.panel);
  });
  finisher.finish();
}

}  // namespace sf::tiles
