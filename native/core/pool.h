// The thread pool: spin, then park. Work is a count of tasks that any thread may claim; results never depend on
// who claims what, since a task owns its outputs.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace sf {

class Pool {
 public:
  explicit Pool(int num_threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Threads that take tasks, the caller's among them.
  int size() const { return active_.load(std::memory_order_relaxed); }

  // Lets at most so many threads take tasks; the others sleep. Between runs, from the thread that runs. Memory by
  // thread must have room for all the same: a thread that is just being put to sleep may still take a task.
  void use(int num_threads);

  // body(task, thread) for every task in [0, count), on all threads, the caller's among them. body must not throw.
  template <class Body>
  void run(int64_t count, const Body& body) {
    if (count <= 0) return;
    if (count == 1 || size() == 1) {
      for (int64_t task = 0; task < count; ++task) body(task, 0);
      return;
    }
    dispatch(
        count, [](const void* b, int64_t task, int thread) { (*static_cast<const Body*>(b))(task, thread); }, &body);
  }

  // As run, for tasks over memory that lies side by side: each thread goes through a stretch of its own, in order, and
  // then helps with the others'.
  template <class Body>
  void run_in_stretches(int64_t count, const Body& body) {
    const int64_t num = std::min<int64_t>(count, size());
    for (int64_t i = 0; i < num; ++i) stretches_[i].next.store(count * i / num, std::memory_order_relaxed);
    run(num, [&](int64_t own, int thread) {
      for (int64_t i = 0; i < num; ++i) {
        const int64_t at = (own + i) % num, end = count * (at + 1) / num;
        int64_t task;
        while ((task = stretches_[at].next.fetch_add(1, std::memory_order_relaxed)) < end) body(task, thread);
      }
    });
  }

  // The task that a thread will probably run after `task` (of `count`), to ask for its memory early: one thread runs
  // them upwards, several claim them downwards. After the last it is any.
  int64_t probably_next(int64_t task, int64_t count) const {
    return size() == 1 ? std::min(task + 1, count - 1) : std::max<int64_t>(task - size(), 0);
  }

 private:
  using Invoke = void (*)(const void* body, int64_t task, int thread);
  void dispatch(int64_t count, Invoke invoke, const void* body);
  void work(int thread);
  void claim(int thread);

  // Written before unclaimed_ is stored, read only after a task has been claimed: so a late thread can never see a
  // job that is over. A claim takes one from unclaimed_; a value of zero or less is no claim.
  Invoke invoke_ = nullptr;
  const void* body_ = nullptr;
  alignas(64) std::atomic<int64_t> unclaimed_{0};
  alignas(64) std::atomic<int64_t> unfinished_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};
  std::atomic<int> active_;
  std::atomic<bool> stop_{false};
  struct Stretch {
    alignas(64) std::atomic<int64_t> next{0};  // task
  };
  std::vector<Stretch> stretches_;  // by number; their stores come before unclaimed_'s
  std::vector<std::thread> workers_;
};

}  // namespace sf
