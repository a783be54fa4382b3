#include "core/pool.h"

#include "relax.h"  // of the architecture

namespace sf {

Pool::Pool(int num_threads) : active_(num_threads), stretches_(num_threads) {
  for (int thread = 1; thread < num_threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

Pool::~Pool() {
  stop_.store(true);
  use(static_cast<int>(workers_.size()) + 1);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void Pool::use(int num_threads) {
  active_.store(std::clamp(num_threads, 1, static_cast<int>(workers_.size()) + 1), std::memory_order_release);
  active_.notify_all();
}

void Pool::claim(int thread) {
  int64_t done = 0, left;
  for (; (left = unclaimed_.fetch_sub(1, std::memory_order_acq_rel)) > 0; ++done) invoke_(body_, left - 1, thread);
  if (done) unfinished_.fetch_sub(done, std::memory_order_release);
}

void Pool::work(int thread) {
  uint32_t seen = 0;
  for (;;) {
    for (int active; thread >= (active = active_.load(std::memory_order_acquire));) active_.wait(active);
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
