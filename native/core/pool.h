// The thread pool: spin, then park. Work is a count of tasks that any thread may claim; results never depend on
// who claims what, since a task owns its outputs. Threads are grouped by node: each node has its own part of the tasks,
// and helps other nodes once that is claimed.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace sf {

class Pool {
 public:
  // node_of_thread: the node of each thread, from 0; empty: one node.
  explicit Pool(int num_threads, std::vector<int> node_of_thread = {});
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Threads that take tasks, the caller's among them.
  int size() const { return active_.load(std::memory_order_relaxed); }

  size_t num_nodes() const { return nodes_.size(); }
  size_t node_of(int thread) const { return node_of_thread_[thread]; }
  // Threads of a node that take tasks.
  int threads_of(size_t node) const { return threads_before_[node + 1] - threads_before_[node]; }

  // The end of a node's part of `count` tasks; it begins where the node before ends. Parts are as large as the nodes'
  // shares of the threads.
  int64_t part_end(size_t node, int64_t count) const {
    return node + 1 == nodes_.size() ? count : (count * threads_before_[node + 1] + size() - 1) / size();
  }

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
  // then helps with the others', those of the same node first.
  template <class Body>
  void run_in_stretches(int64_t count, const Body& body) {
    const int64_t num = std::min<int64_t>(count, size());
    if (num <= 0) return;
    const int64_t length = count / num, longer = count % num;  // so many stretches have one task more
    run_stretches(num, count, body, [=](int64_t at) {
      const int64_t begin = at * length + std::min(at, longer);
      return std::pair(begin, begin + length + (at < longer));
    });
  }

  // As run_in_stretches, where the caller has numbered the tasks by node. end_of_node: of each node's tasks; a node
  // whose part (part_end) is empty has none.
  template <class Body>
  void run_by_node(const std::vector<int64_t>& end_of_node, const Body& body) {
    if (end_of_node.back() <= 0) return;
    run_stretches(size(), end_of_node.back(), body, [&](int64_t at) {
      size_t node = 0;
      while (threads_before_[node + 1] <= at) ++node;
      const int64_t begin = node ? end_of_node[node - 1] : 0, count = end_of_node[node] - begin;
      const int64_t i = at - threads_before_[node], parts = threads_of(node);
      return std::pair(begin + count * i / parts, begin + count * (i + 1) / parts);
    });
  }

  // The task that a thread will probably run after `task` (of `count`), to ask for its memory early: one thread runs
  // them upwards, several claim them downwards. After the last it is any.
  int64_t probably_next(int64_t task, int64_t count, int thread) const {
    if (size() == 1) return std::min(task + 1, count - 1);
    return std::max<int64_t>(task - threads_of(node_of_thread_[thread]), 0);
  }

 private:
  using Invoke = void (*)(const void* body, int64_t task, int thread);

  // ends_of: the first task of a stretch, and the task after its last.
  template <class Body, class Ends>
  void run_stretches(int64_t num, int64_t count, const Body& body, const Ends& ends_of) {
    const int64_t base = next_base_;
    next_base_ += count + static_cast<int64_t>(stretches_.size());  // what claims leave is below it
    run(num, [&](int64_t own, int thread) {
      const auto [first, last] = node_tasks(own, num);  // stretches of this node
      const int64_t width = last - first;
      for (int64_t i = 0; i < num; ++i) {
        const int64_t at = i < width ? first + (own - first + i) % width : (last + i - width) % num;
        const auto [begin, end] = ends_of(at);
        if (stretches_[at].open(base + begin) >= base + end) continue;
        for (int64_t task; (task = stretches_[at].next.fetch_add(1, std::memory_order_relaxed) - base) < end;)
          body(task, thread);
      }
    });
  }

  void dispatch(int64_t count, Invoke invoke, const void* body);
  void work(int thread);
  void claim(int thread);
  struct Node;
  static void park(Node& node, uint32_t seen);

  // The part of `count` tasks that `task` is in.
  std::pair<int64_t, int64_t> node_tasks(int64_t task, int64_t count) const {
    int64_t begin = 0, end = 0;
    for (size_t node = 0; (end = part_end(node, count)) <= task; ++node) begin = end;
    return {begin, end};
  }

  // Two lines, since the caller watches the second while others claim from the first.
  struct Node {
    // A claim takes one from unclaimed; a value of zero or less is no claim. The job is written before unclaimed is
    // stored, and read only after a task has been claimed: so a late thread can never see a job that is over.
    alignas(64) std::atomic<int64_t> unclaimed{0};
    Invoke invoke = nullptr;
    const void* body = nullptr;
    int64_t first = 0;               // task
    std::atomic<uint32_t> epoch{0};  // of jobs; threads wait for its change
    alignas(64) std::atomic<int64_t> unfinished{0};
    std::atomic<int> parked{0};            // threads that may have to be woken
    std::atomic<bool> wake_others{false};  // asked of the next thread that wakes
  };
  // Numbers of tasks grow from job to job: a number below `begin` was left by an earlier job.
  struct Stretch {
    alignas(64) std::atomic<int64_t> next{0};
    // The next task. The first thread begins the stretch; a thread that finds nothing left writes nothing.
    int64_t open(int64_t begin) {
      int64_t at = next.load(std::memory_order_relaxed);
      while (at < begin && !next.compare_exchange_weak(at, begin, std::memory_order_relaxed)) continue;
      return std::max(at, begin);
    }
  };
  std::vector<Node> nodes_;
  std::vector<Stretch> stretches_;  // by number
  std::vector<int> node_of_thread_;
  std::vector<int> threads_before_;  // active threads of all nodes before this one; written by use()
  std::atomic<int> active_{0};
  std::atomic<bool> stop_{false};
  alignas(64) int64_t next_base_ = 1;  // of the stretches' numbers; the caller's, and so not among what all read
  std::vector<std::thread> workers_;
};

}  // namespace sf
