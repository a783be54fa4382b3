// Rotary embedding.
//   table:     angle = float32(position) * inv_freq;  cos(angle) * scale, sin(angle) * scale; where rows have scales,
//              scale is the product of both
//   rotation:  (a, b) becomes (a cos - b sin, b cos + a sin), each as fma of the second product onto the rounded first
// A head's first 2 * pairs lanes rotate; the rest stay as they are.
#include "core/check.h"
#include "core/elementary.h"
#include "kernels/elements.h"

namespace sf {
namespace {

// Lane i with lane i + pairs.
void rotate_halves(float* x, const float* cosines, const float* sines, int64_t pairs) {
  each_run(0, pairs, [&](int64_t i, int n) {
    const Lanes a = load_n(x + i, n), b = load_n(x + pairs + i, n);
    const Lanes c = load_n(cosines + i, n), s = load_n(sines + i, n);
    store_n(x + i, fma(neg(b), s, mul(a, c)), n);
    store_n(x + pairs + i, fma(a, s, mul(b, c)), n);
  });
}

// Lane 2i with lane 2i + 1. Left to the compiler, which vectorises it where the instructions exist.
void rotate_neighbours(float* __restrict x, const float* __restrict cosines, const float* __restrict sines,
                       int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1], c = cosines[i], s = sines[i];
    x[2 * i] = std::fmaf(-b, s, a * c);
    x[2 * i + 1] = std::fmaf(a, s, b * c);
  }
}

}  // namespace

Error op_rope_table(Context& context, sf_rope_table_args& args) {
  SF_REQUIRE(args.positions && args.inv_freq && args.cos && args.sin, kNullPointer);
  SF_REQUIRE(args.rows >= 0 && args.pairs > 0, kBadShape);
  // An angle costs as much as a hundred elements of a row of floats.
  run_rows(context, args.rows, args.pairs * 100, [&](int64_t row, int) {
    const float position = static_cast<float>(args.positions[row]);
    const float scale = args.row_scales ? args.scale * args.row_scales[row] : args.scale;
    for (int64_t i = 0; i < args.pairs; ++i) {
      const float angle = position * args.inv_freq[i];
      args.cos[row * args.pairs + i] = cos(angle) * scale;
      args.sin[row * args.pairs + i] = sin(angle) * scale;
    }
  });
  return kOk;
}

Error op_rope(Context& context, sf_rope_args& args) {
  SF_REQUIRE(args.x && args.cos && args.sin, kNullPointer);
  SF_REQUIRE(args.rows >= 0 && args.heads > 0 && args.pairs > 0 && 2 * args.pairs <= args.head_dim, kBadShape);
  SF_REQUIRE(args.x_stride >= args.heads * args.head_dim, kBadShape);
  SF_REQUIRE(args.pairing == 0 || args.pairing == 1, kBadOption);
  const auto rotate = args.pairing == 0 ? rotate_halves : rotate_neighbours;
  run_rows(context, args.rows, args.heads * args.head_dim, [&](int64_t row, int) {
    const float *cosines = args.cos + row * args.pairs, *sines = args.sin + row * args.pairs;
    for (int64_t head = 0; head < args.heads; ++head)
      rotate(args.x + row * args.x_stride + head * args.head_dim, cosines, sines, args.pairs);
  });
  return kOk;
}

}  // namespace sf
