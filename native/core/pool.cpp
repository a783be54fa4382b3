#include "core/pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sf {
namespace {

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// About 50 microseconds: longer than the gap between two operations of a step, shorter than anyone would notice.
constexpr int kSpins = 2000;

}  // namespace

Pool::Pool(int num_threads) : stretches_(num_threads) {
  for (int thread = 1; thread < num_threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

Pool::~Pool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void Pool::claim(int thread) {
  int64_t done = 0, left;
  for (; (left = unclaimed_.fetch_sub(1, std::memory_order_acq_rel)) > 0; ++done) invoke_(body_, left - 1, thread);
  if (done) unfinished_.fetch_sub(done, std::memory_order_release);
}

void Pool::work(int thread) {
  uint32_t seen = 0;
  for (;;) {
    for (int spin = 0; epoch_.load(std::memory_order_acquire) == seen && spin < kSpins; ++spin) relax();
    epoch_.wait(seen, std::memory_order_acquire);
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    claim(thread);
  }
}

void Pool::dispatch(int64_t count, Invoke invoke, const void* body) {
  invoke_ = invoke;
  body_ = body;
  unfinished_.store(count, std::memory_order_relaxed);
  unclaimed_.store(count, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  claim(0);
  for (int spin = 0; unfinished_.load(std::memory_order_acquire) > 0; ++spin)
    spin < kSpins ? relax() : std::this_thread::yield();
}

}  // namespace sf
