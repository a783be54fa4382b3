#include "core/pool.h"

#include <numeric>

#include "relax.h"  // of the architecture

#ifndef SF_DELAY  // the tests of the pool wait here now and then, where another thread could come between
#define SF_DELAY()
#endif

namespace sf {

Pool::Pool(int num_threads, std::vector<int> node_of_thread)
    : nodes_(node_of_thread.empty() ? 1 : *std::max_element(node_of_thread.begin(), node_of_thread.end()) + 1),
      stretches_(num_threads), node_of_thread_(std::move(node_of_thread)), threads_before_(nodes_.size() + 1) {
  node_of_thread_.resize(num_threads);
  use(num_threads);
  for (int thread = 1; thread < num_threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

Pool::~Pool() {
  stop_.store(true);
  use(static_cast<int>(node_of_thread_.size()));
  for (Node& node : nodes_) {
    node.epoch.fetch_add(1);
    node.epoch.notify_all();
  }
  for (auto& worker : workers_) worker.join();
}

void Pool::use(int num_threads) {
  const int active = std::clamp(num_threads, 1, static_cast<int>(node_of_thread_.size()));
  std::fill(threads_before_.begin(), threads_before_.end(), 0);
  for (int thread = 0; thread < active; ++thread) ++threads_before_[node_of_thread_[thread] + 1];
  std::partial_sum(threads_before_.begin(), threads_before_.end(), threads_before_.begin());
  active_.store(active, std::memory_order_release);
  active_.notify_all();
}

void Pool::claim(int thread) {
  const size_t home = node_of_thread_[thread];
  size_t at = home;
  do {
    Node& node = nodes_[at];
    int64_t done = 0;
    // Looks before it claims where little is left: a line that many threads only read moves to all of them at once.
    for (int64_t left = node.unclaimed.load(std::memory_order_relaxed); left > 0;) {
      left = node.unclaimed.fetch_sub(1, std::memory_order_acq_rel);
      if (left <= 0) break;
      node.invoke(node.body, node.first + left - 1, thread);
      ++done;
      left = left > threads_of(at) ? left - 1 : node.unclaimed.load(std::memory_order_relaxed);
    }
    if (done) node.unfinished.fetch_sub(done, std::memory_order_release);
    at = at + 1 == nodes_.size() ? 0 : at + 1;
  } while (at != home);
}

void Pool::work(int thread) {
  Node& node = nodes_[node_of_thread_[thread]];
  uint32_t seen = 0;
  for (;;) {
    for (int active; thread >= (active = active_.load(std::memory_order_acquire));) active_.wait(active);
    int spin = 0;
    for (; node.epoch.load(std::memory_order_acquire) == seen && spin < kSpins; ++spin) relax();
    if (spin == kSpins) park(node, seen);
    seen = node.epoch.load(std::memory_order_acquire);
    if (stop_.load()) return;
    claim(thread);
  }
}

// Says that it is parked before it looks at the epoch; dispatch changes the epoch before it looks who is parked. Both
// in one order (seq_cst), so that no wake-up is lost. The caller wakes one thread of a node, and that one wakes the
// others.
void Pool::park(Node& node, uint32_t seen) {
  node.parked.fetch_add(1);
  SF_DELAY();
  node.epoch.wait(seen);
  SF_DELAY();
  node.parked.fetch_sub(1);
  SF_DELAY();
  if (node.wake_others.exchange(false)) node.epoch.notify_all();
}

void Pool::dispatch(int64_t count, Invoke invoke, const void* body) {
  int64_t begin = 0, end = 0;
  for (size_t i = 0; i < nodes_.size(); ++i, begin = end) {
    end = part_end(i, count);
    if (begin == end) continue;
    Node& node = nodes_[i];
    node.invoke = invoke;
    node.body = body;
    node.first = begin;
    node.unfinished.store(end - begin, std::memory_order_relaxed);
    node.unclaimed.store(end - begin, std::memory_order_release);
    SF_DELAY();
  }
  // A loop of its own, so that the lines of all nodes are on their way at once. A node is woken even if late threads
  // have claimed its tasks by now: tasks may wait for each other, up to one for each thread.
  begin = 0;
  for (size_t i = 0; i < nodes_.size(); ++i, begin = end) {
    end = part_end(i, count);
    if (begin == end) continue;
    Node& node = nodes_[i];
    node.epoch.fetch_add(1);
    SF_DELAY();
    if (node.parked.load() == 0) continue;
    SF_DELAY();
    // Not earlier: a thread that still wakes for the job before would wake the others in vain, before the epoch
    // changes.
    node.wake_others.store(true);
    SF_DELAY();
    node.epoch.notify_one();
  }
  claim(0);
  for (Node& node : nodes_)
    for (int spin = 0; node.unfinished.load(std::memory_order_acquire) > 0; ++spin)
      spin < kSpins ? relax() : std::this_thread::yield();
}

}  // namespace sf
