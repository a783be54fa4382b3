// Measurements of the machine on the context's threads: how fast it reads memory, how fast it multiplies.
#include <atomic>
#include <chrono>
#include <thread>

#include "bf16_matrix_peak.h"  // of the variant
#include "core/check.h"
#include "core/context.h"
#include "core/sizes.h"
#include "peak.h"  // of the variant

namespace sf {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// 64 bytes: one register, or as many as the variant needs.
typedef uint64_t Line __attribute__((vector_size(64), aligned(64)));
constexpr int64_t kPieceBytes = int64_t(4) << 20;  // long enough to stream, short enough to share out evenly
// Each piece is read as several streams at once: one stream alone leaves a quarter of the bandwidth unused, since the
// hardware prefetcher runs only so far ahead of each.
constexpr int64_t kStreams = 4, kLinesAtOnce = 2, kGranuleBytes = 64 * kStreams * kLinesAtOnce;

void read_piece(const Line* lines, int64_t count) {
  Line sums[kLinesAtOnce] = {};
  const int64_t stream = count / kStreams;
  for (int64_t i = 0; i < stream; i += kLinesAtOnce)
    for (int64_t s = 0; s < kStreams; ++s)
      for (int64_t u = 0; u < kLinesAtOnce; ++u) sums[u] ^= lines[s * stream + i + u];
  __asm__ volatile("" : : "m"(sums));
}

// One task on every thread at once: nobody starts before all have come, so no thread can take two.
template <class Task>
double seconds_on_all(Pool& pool, const Task& task) {
  std::atomic<int> missing{pool.size()};
  Clock::time_point start;
  pool.run(pool.size(), [&](int64_t index, int) {
    missing.fetch_sub(1);
    while (missing.load() > 0) std::this_thread::yield();
    if (index == 0) start = Clock::now();
    task(index);
  });
  return seconds_since(start);
}

int64_t one_peak(int32_t kind, int64_t iterations) {
  if (kind == 0) return int8_peak(iterations);
  return kind == 1 ? float_peak(iterations) : bf16_matrix_peak(iterations);
}

}  // namespace

Error op_read_bandwidth(Context& context, sf_read_bandwidth_args& args) {
  SF_REQUIRE(args.data, kNullPointer);
  SF_REQUIRE(aligned64(args.data), kMisaligned);
  SF_REQUIRE(args.bytes > 0 && args.bytes % kGranuleBytes == 0 && args.repeats > 0, kBadShape);
  const auto* bytes = static_cast<const char*>(args.data);
  const int64_t pieces = divide_up(args.bytes, kPieceBytes);
  const auto start = Clock::now();
  for (int64_t repeat = 0; repeat < args.repeats; ++repeat)
    context.pool.run(pieces, [&](int64_t piece, int) {
      const int64_t at = piece * kPieceBytes, left = args.bytes - at;
      read_piece(reinterpret_cast<const Line*>(bytes + at), (left < kPieceBytes ? left : kPieceBytes) / 64);
    });
  args.seconds = seconds_since(start);
  return kOk;
}

Error op_peak(Context& context, sf_peak_args& args) {
  SF_REQUIRE(args.iterations > 0, kBadShape);
  SF_REQUIRE(args.kind >= 0 && args.kind <= (kHasBf16Matrix ? 2 : 1), kBadOption);
  std::atomic<int64_t> operations{0};
  args.seconds = seconds_on_all(context.pool, [&](int64_t) { operations += one_peak(args.kind, args.iterations); });
  args.operations = static_cast<double>(operations.load());
  return kOk;
}

}  // namespace sf
