#include "core/pool.h"

#include <chrono>

#include "tests/testing.h"

namespace {

// Every task must run exactly once, on a thread of the pool, and be visible when the job's end is told; in either
// order.
void run_once_each(sf::Pool& pool, int64_t count, int threads) {
  for (const bool in_stretches : {false, true}) {
    std::vector<int> seen(count), thread_of(count);
    const auto body = [&](int64_t task, int thread) {
      ++seen[task];
      thread_of[task] = thread;
    };
    in_stretches ? pool.run_in_stretches(count, body) : pool.run(count, body);
    for (int64_t task = 0; task < count; ++task)
      CHECK(seen[task] == 1 && thread_of[task] >= 0 && thread_of[task] < threads);
  }
}

// The same for tasks that are numbered by node: `each` of them for every panel that a node has.
void run_once_by_node(sf::Pool& pool, int64_t panels, int64_t each) {
  std::vector<int64_t> end_of_node;
  for (size_t node = 0; node < pool.num_nodes(); ++node) end_of_node.push_back(each * pool.part_end(node, panels));
  std::vector<int> seen(panels * each);
  pool.run_by_node(end_of_node, [&](int64_t task, int) { ++seen[task]; });
  for (const int times : seen) CHECK(times == 1);
}

// As many tasks as threads, each of which ends when all have begun: it takes every thread, so that a lost wake-up would
// wait for ever.
void meet(sf::Pool& pool) {
  std::atomic<int> missing{pool.size()};
  std::vector<std::atomic<int>> tasks_of(64);
  pool.run(pool.size(), [&](int64_t, int thread) {
    ++tasks_of[thread];
    --missing;
    while (missing.load() > 0) std::this_thread::yield();
  });
  for (const auto& tasks : tasks_of) CHECK(tasks <= 1);
}

// One task waits until all others are done.
void run_others_first(sf::Pool& pool, int64_t count, int64_t last, bool in_stretches) {
  std::atomic<int64_t> done{0};
  const auto body = [&](int64_t task, int) {
    while (task == last && done.load() < count - 1) std::this_thread::yield();
    ++done;
  };
  in_stretches ? pool.run_in_stretches(count, body) : pool.run(count, body);
  CHECK(done == count);
}

}  // namespace

// Committed on purpose, to show that ThreadSanitizer would find it.
void race() {
  sf::Pool pool(2);
  std::atomic<int> missing{2};  // relaxed, so that it orders nothing else
  int64_t count = 0;
  pool.run(2, [&](int64_t, int) {
    missing.fetch_sub(1, std::memory_order_relaxed);
    while (missing.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
    ++count;
  });
}

TEST(pool_runs_every_task_once_in_many_short_jobs) {
  for (int threads : {1, 2, 3, 7}) {
    sf::Pool pool(threads);
    for (int job = 0; job < 1500; ++job) run_once_each(pool, job % 11, threads);
  }
}

TEST(pool_survives_oversubscription) {
  sf::Pool pool(32);
  for (int job = 0; job < 40; ++job) run_once_each(pool, 100, 32);
}

TEST(pool_wakes_after_parking) {
  sf::Pool pool(3);
  for (int job = 0; job < 20; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    run_once_each(pool, 5, 3);
  }
}

TEST(pool_opens_and_closes) {
  for (int round = 0; round < 60; ++round) {
    sf::Pool pool(1 + round % 8);
    if (round % 2) run_once_each(pool, round, pool.size());
  }
}

TEST(pool_jobs_see_what_the_jobs_before_wrote) {
  sf::Pool pool(4);
  std::vector<int64_t> values(64, 0);
  for (int64_t job = 1; job <= 500; ++job) {
    // Each task reads its neighbour's value of the job before: a race or a missing barrier would show.
    std::vector<int64_t> next(values.size());
    pool.run(64, [&](int64_t task, int) { next[task] = values[(task + 1) % 64] + 1; });
    values = next;
  }
  for (const int64_t value : values) CHECK(value == 500);
}

TEST(pool_of_64_threads_on_4_nodes_loses_no_task_and_no_wake_up) {
  testing::Numbers numbers;
  for (const int layout : {0, 1, 2}) {  // threads side by side, dealt in turn, and of uneven nodes, one of them empty
    std::vector<int> node_of_thread(64);
    for (int thread = 0; thread < 64; ++thread)
      node_of_thread[thread] = layout == 0 ? thread / 16 : layout == 1 ? thread % 4 : thread < 50 ? 3 : thread % 2;
    sf::Pool pool(64, node_of_thread);
    for (int job = 0; job < 24; ++job) {
      if (job % 3 == 0) pool.use(1 + numbers.below(64));
      if (job % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // some park, some do not
      run_once_each(pool, numbers.below(200), 64);
      meet(pool);
    }
    pool.use(64);
    meet(pool);
  }
}

TEST(pool_wakes_every_thread_while_others_still_wake) {
  for (const int nodes : {1, 2}) {
    std::vector<int> node_of_thread(16);
    for (int thread = 0; thread < 16; ++thread) node_of_thread[thread] = thread % nodes;
    sf::Pool pool(16, node_of_thread);
    for (int job = 0; job < 300; ++job) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      pool.run(16, [](int64_t, int) {});
      meet(pool);
    }
  }
}

TEST(pool_of_few_threads_on_4_nodes) {
  for (const int threads : {4, 5, 7}) {
    const int nodes[] = {2, 0, 1, 2, 3, 1, 0};
    sf::Pool pool(threads, std::vector<int>(nodes, nodes + threads));
    for (int job = 0; job < 600; ++job) {
      pool.use(1 + job / 7 % threads);
      run_once_each(pool, job % 13, threads);
    }
  }
}

TEST(pool_deals_tasks_to_the_threads_of_their_node) {
  const int nodes[] = {2, 0, 3, 2, 0, 0, 3, 0};  // node 1 has none
  sf::Pool pool(8, std::vector<int>(nodes, nodes + 8));
  const std::vector<int64_t> end_of_node{4, 4, 6, 8};  // as many tasks as threads
  for (int job = 0; job < 100; ++job) {
    std::atomic<int> missing{8};
    pool.run_by_node(end_of_node, [&](int64_t task, int thread) {
      CHECK(static_cast<int>(pool.node_of(thread)) == (task < 4 ? 0 : task < 6 ? 2 : 3));
      --missing;
      while (missing.load() > 0) std::this_thread::yield();
    });
  }
}

TEST(pool_runs_tasks_numbered_by_node_once) {
  testing::Numbers numbers;
  sf::Pool pool(9, {1, 0, 2, 3, 3, 1, 2, 1, 5});  // node 4 has no thread
  for (int job = 0; job < 400; ++job) {
    pool.use(1 + numbers.below(9));
    run_once_by_node(pool, numbers.below(50), 1 + numbers.below(4));
    run_once_each(pool, numbers.below(50), 9);
  }
}

TEST(pool_helps_other_nodes) {
  sf::Pool pool(4, {0, 0, 1, 1});
  for (int64_t last = 0; last < 40; ++last)
    for (const bool in_stretches : {false, true}) run_others_first(pool, 40, last, in_stretches);
}
