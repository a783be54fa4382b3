// Sums and products in tile registers: what the four or six sums are is said in linear_tiles.h.
#pragma once
#include "tile_shape.h"
#include "tiles.h"

namespace sf::tiles {

// ---- sums between tiles and memory: a band's Sums lie one after the other, [row][k0, k1, k2][32] ----

template <int Count>
inline void load_sums(const Sums<Count>* s) {
  _tile_loadd(0, s->k[0], sizeof(*s));
  _tile_loadd(1, s->k[0] + kHalf, sizeof(*s));
  _tile_loadd(2, s->k[1], sizeof(*s));
  _tile_loadd(3, s->k[1] + kHalf, sizeof(*s));
  if constexpr (Count == 3) {
    _tile_loadd(4, s->k[2], sizeof(*s));
    _tile_loadd(5, s->k[2] + kHalf, sizeof(*s));
  }
}

template <bool RowPairs, int Count>
inline void store_sums(Sums<Count>* s) {
  _tile_stored(0, s->k[0], sizeof(*s));
  _tile_stored(1, s->k[0] + kHalf, sizeof(*s));
  int32_t* second = RowPairs ? (s + 16)->k[0] : s->k[1];
  _tile_stored(2, second, sizeof(*s));
  _tile_stored(3, second + kHalf, sizeof(*s));
  if constexpr (Count == 3) {
    _tile_stored(4, s->k[2], sizeof(*s));
    _tile_stored(5, s->k[2] + kHalf, sizeof(*s));
  }
}

template <int Count>
inline void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  if constexpr (Count == 3) {
    _tile_zero(4);
    _tile_zero(5);
  }
}

// ---- products: planes w are [tile][limb][half]; even and odd do vector work in the shadow of a product, in turn ----

// Two tiles of rows times one limb of weight.
template <class Even, class Odd>
inline void multiply_pairs(const int8_t* a, const int8_t* b, int64_t stride, const uint8_t* w, int64_t tiles,
                           Even& even, Odd& odd) {
  for (int64_t t = 0; t < tiles; ++t, a += kTile, b += kTile, w += 2 * kTileBytes) {
    _tile_stream_loadd(4, a, stride);
    _tile_loadd(6, w, kLine);
    _tile_dpbssd(0, 4, 6);
    even.step();
    _tile_loadd(7, w + kTileBytes, kLine);
    _tile_dpbssd(1, 4, 7);
    odd.step();
    _tile_stream_loadd(5, b, stride);
    _tile_dpbssd(2, 5, 6);
    even.step();
    _tile_dpbssd(3, 5, 7);
    odd.step();
  }
}

// One tile of rows times all limbs.
template <int WLimbs, class Even, class Odd>
inline void multiply_one(const int8_t* a, int64_t stride, const uint8_t* w, int64_t tiles, Even& even, Odd& odd) {
  for (int64_t t = 0; t < tiles; ++t, a += kTile, w += 2 * WLimbs * kTileBytes) {
    _tile_stream_loadd(4, a, stride);
    _tile_loadd(6, w, kLine);
    _tile_dpbssd(0, 4, 6);
    even.step();
    _tile_loadd(7, w + kTileBytes, kLine);
    _tile_dpbssd(1, 4, 7);
    odd.step();
    if constexpr (WLimbs == 2) {
      _tile_loadd(6, w + 2 * kTileBytes, kLine);
      _tile_dpbssd(2, 4, 6);
      even.step();
      _tile_loadd(7, w + 3 * kTileBytes, kLine);
      _tile_dpbssd(3, 4, 7);
      odd.step();
    }
  }
}

// Two limbs by two. Sums 2 and 3 get two products each, kept four apart, since a product's result is ready after about
// 52 cycles.
template <class Even, class Odd>
inline void multiply_two_by_two(const int8_t* high, const int8_t* low, int64_t stride, const uint8_t* w, int64_t tiles,
                                Even& even, Odd& odd) {
  for (int64_t t = 0; t < tiles; ++t, high += kTile, low += kTile, w += 4 * kTileBytes) {
    _tile_stream_loadd(6, high, stride);
    _tile_loadd(7, w + 2 * kTileBytes, kLine);
    _tile_dpbssd(2, 6, 7);
    even.step();
    _tile_loadd(7, w + 3 * kTileBytes, kLine);
    _tile_dpbssd(3, 6, 7);
    odd.step();
    _tile_loadd(7, w + kTileBytes, kLine);
    _tile_dpbssd(1, 6, 7);
    even.step();
    _tile_loadd(7, w, kLine);
    _tile_dpbssd(0, 6, 7);
    odd.step();
    _tile_stream_loadd(6, low, stride);
    _tile_dpbssd(2, 6, 7);
    even.step();
    _tile_loadd(7, w + kTileBytes, kLine);
    _tile_dpbssd(3, 6, 7);
    odd.step();
    _tile_loadd(7, w + 3 * kTileBytes, kLine);
    _tile_dpbssd(5, 6, 7);
    even.step();
    _tile_loadd(7, w + 2 * kTileBytes, kLine);
    _tile_dpbssd(4, 6, 7);
    odd.step();
  }
}

// Two limbs by two, two bands by half a panel (planes [tile][limb]): sums 0 to 2 are the first band's k0, k1, k2, 3 to
// 5 the second's. Nine loads for eight products, five of them from L1.
template <class Even, class Odd>
inline void multiply_two_bands(const int8_t* first, const int8_t* second, int64_t limb, int64_t stride,
                               const uint8_t* w, int64_t tiles, Even& even, Odd& odd) {
  for (int64_t t = 0; t < tiles; ++t, first += kTile, second += kTile, w += 2 * kTileBytes) {
    _tile_stream_loadd(6, first, stride);
    _tile_loadd(7, w, kLine);
    _tile_dpbssd(0, 6, 7);
    even.step();
    _tile_loadd(7, w + kTileBytes, kLine);
    _tile_dpbssd(1, 6, 7);
    odd.step();
    _tile_stream_loadd(6, second, stride);
    _tile_dpbssd(4, 6, 7);
    even.step();
    _tile_loadd(7, w, kLine);
    _tile_dpbssd(3, 6, 7);
    odd.step();
    _tile_stream_loadd(6, first + limb, stride);
    _tile_dpbssd(1, 6, 7);
    even.step();
    _tile_loadd(7, w + kTileBytes, kLine);
    _tile_dpbssd(2, 6, 7);
    odd.step();
    _tile_stream_loadd(6, second + limb, stride);
    _tile_dpbssd(5, 6, 7);
    even.step();
    _tile_loadd(7, w, kLine);
    _tile_dpbssd(4, 6, 7);
    odd.step();
  }
}

}  // namespace sf::tiles
