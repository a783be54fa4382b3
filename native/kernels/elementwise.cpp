// softcap: y = cap * tanh(x / cap).   add: y = (a + b) * scale.   embed: row ids[r] of the table, times scale.
#include "core/check.h"
#include "core/elementary.h"
#include "kernels/elements.h"
#include "kernels/pack.h"

namespace sf {

Error op_softcap(Context& context, sf_softcap_args& args) {
  SF_REQUIRE(args.x && args.y, kNullPointer);
  SF_REQUIRE(args.count >= 0, kBadShape);
  SF_REQUIRE(args.cap > 0.0f, kBadOption);
  const Lanes cap = set1(args.cap);
  run_elements(context, args.count,
               [&](int64_t i, int n) { store_n(args.y + i, mul(cap, tanh(div(load_n(args.x + i, n), cap))), n); });
  return kOk;
}

Error op_add(Context& context, sf_add_args& args) {
  SF_REQUIRE(args.a && args.y, kNullPointer);
  SF_REQUIRE(args.count >= 0, kBadShape);
  const Lanes scale = set1(args.scale);
  run_elements(context, args.count, [&](int64_t i, int n) {
    Lanes v = load_n(args.a + i, n);
    if (args.b) v = add(v, load_n(args.b + i, n));
    store_n(args.y + i, mul(v, scale), n);
  });
  return kOk;
}

namespace {

Lanes load_bf16_n(const uint16_t* p, int n) {
  if (n == kLanes) return load_bf16(p);
  uint16_t part[kLanes] = {};
  std::memcpy(part, p, n * sizeof(uint16_t));
  return load_bf16(part);
}

void embed_row(const sf_embed_args& args, int64_t row) {
  const int64_t start = args.ids[row] * args.cols;
  const Lanes scale = set1(args.scale);
  each_run(0, args.cols, [&](int64_t k, int n) {
    const Lanes v = args.dtype == 0 ? load_n(static_cast<const float*>(args.table) + start + k, n)
                                    : load_bf16_n(static_cast<const uint16_t*>(args.table) + start + k, n);
    store_n(args.y + row * args.y_stride + k, mul(v, scale), n);
  });
}

void embed_packed_row(const sf_embed_args& args, const PackedHeader& h, int64_t row) {
  const int64_t id = args.ids[row];
  const float row_scale = h.scales()[id];
  float* y = args.y + row * args.y_stride;
  for (int64_t k = 0; k < args.cols; ++k) y[k] = static_cast<float>(weight_at(h, id, k)) * row_scale * args.scale;
}

}  // namespace

Error op_embed(Context& context, sf_embed_args& args) {
  SF_REQUIRE(args.ids && args.table && args.y, kNullPointer);
  SF_REQUIRE(args.rows >= 0 && args.vocab > 0 && args.cols > 0 && args.y_stride >= args.cols, kBadShape);
  SF_REQUIRE(args.dtype >= 0 && args.dtype <= 2, kBadOption);
  for (int64_t row = 0; row < args.rows; ++row)
    SF_REQUIRE(args.ids[row] >= 0 && args.ids[row] < args.vocab, kOutOfRange);
  if (args.dtype == 2) {
    const PackedHeader* h = open_packed(args.table);
    SF_REQUIRE(h && h->n == args.vocab && h->k == args.cols, kBadPacked);
    run_rows(context, args.rows, args.cols, [&](int64_t row, int) { embed_packed_row(args, *h, row); });
    return kOk;
  }
  run_rows(context, args.rows, args.cols, [&](int64_t row, int) { embed_row(args, row); });
  return kOk;
}

}  // namespace sf
