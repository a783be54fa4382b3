// A causal convolution of a few taps, every column by itself:
//   u[t] = x[t] gate_in[t]                         (x[t] without a gate)
//   s = u[t - taps + 1] w[0], then fma(u[t - taps + 1 + j], w[j], s) for j = 1 ... taps - 1, then s + bias
//   y[t] = act(s) gate_out[t]
// Inputs before the chunk come from its state: the last taps - 1 of u, the oldest first.
#include "core/context.h"
#include "kernels/elements.h"
#include "kernels/glu.h"
#include "kernels/state_rows.h"

namespace sf {
namespace {

constexpr int64_t kMaxTaps = 16;
constexpr int64_t kTaskColumns = 256;  // of one chunk: a kilobyte of each row

// One chunk's columns. Inputs inside the chunk are multiplied anew for each tap: it is cheaper than keeping them.
class ChunkConv {
 public:
  ChunkConv(const sf_short_conv_args& args, int64_t chunk)
      : args_(args), first_(args.rows.starts[chunk]), end_(args.rows.starts[chunk + 1]),
        before_(args.rows.loads[chunk] < 0 ? nullptr : slot(args.rows.loads[chunk])) {}

  void columns(int64_t from, int64_t to) const {
    for (int64_t row = first_; row < end_; ++row) {
      each_run(from, to, [&](int64_t k, int n) { store_n(args_.y + row * args_.y_stride + k, output(row, k, n), n); });
      if (args_.rows.saves[row] >= 0) save(row, from, to);
    }
  }

 private:
  float* slot(int64_t number) const { return args_.state + number * (args_.taps - 1) * args_.cols; }

  Lanes input(int64_t row, int64_t k, int n) const {
    if (row < first_) {
      const int64_t place = args_.taps - 1 - (first_ - row);
      return before_ ? load_n(before_ + place * args_.cols + k, n) : zero();
    }
    const Lanes x = load_n(args_.x + row * args_.x_stride + k, n);
    return args_.gate_in ? mul(x, load_n(args_.gate_in + row * args_.x_stride + k, n)) : x;
  }

  Lanes output(int64_t row, int64_t k, int n) const {
    const int64_t oldest = row - args_.taps + 1;
    Lanes sum = mul(input(oldest, k, n), load_n(args_.weight + k, n));
    for (int64_t tap = 1; tap < args_.taps; ++tap)
      sum = fma(input(oldest + tap, k, n), load_n(args_.weight + tap * args_.cols + k, n), sum);
    if (args_.bias) sum = add(sum, load_n(args_.bias + k, n));
    if (args_.silu) sum = silu(sum);
    return args_.gate_out ? mul(sum, load_n(args_.gate_out + row * args_.x_stride + k, n)) : sum;
  }

  void save(int64_t row, int64_t from, int64_t to) const {
    float* state = slot(args_.rows.saves[row]);
    for (int64_t place = 0; place < args_.taps - 1; ++place)
      each_run(from, to, [&](int64_t k, int n) {
        store_n(state + place * args_.cols + k, input(row - (args_.taps - 2) + place, k, n), n);
      });
  }

  const sf_short_conv_args args_;  // a copy: a vector store may alias the caller's
  const int64_t first_, end_;
  const float* before_;
};

Error check_short_conv(const sf_short_conv_args& args) {
  if (const Error error = check_state_rows(args.rows)) return error;
  SF_REQUIRE(args.x && args.weight && args.state && args.y, kNullPointer);
  SF_REQUIRE(args.cols > 0 && args.x_stride >= args.cols && args.y_stride >= args.cols, kBadShape);
  SF_REQUIRE(args.taps >= 2 && args.taps <= kMaxTaps, kBadShape);
  SF_REQUIRE(args.silu == 0 || args.silu == 1, kBadOption);
  return kOk;
}

}  // namespace

Error op_short_conv(Context& context, sf_short_conv_args& args) {
  if (const Error error = check_short_conv(args)) return error;
  const int64_t blocks = divide_up(args.cols, kTaskColumns);
  context.pool.run(args.rows.chunks * blocks, [&](int64_t task, int) {
    const int64_t from = task % blocks * kTaskColumns;
    ChunkConv(args, task / blocks).columns(from, std::min(from + kTaskColumns, args.cols));
  });
  return kOk;
}

}  // namespace sf
