#include "core/pool.h"

#include <chrono>

#include "tests/testing.h"

namespace {

// Every task must run exactly once, on a thread of the pool, and be visible when the job's end is told; in either
// order.
void run_once_each(sf::Pool& pool, int64_t count) {
  for (const bool in_stretches : {false, true}) {
    std::vector<int> seen(count), thread_of(count);
    const auto body = [&](int64_t task, int thread) {
      ++seen[task];
      thread_of[task] = thread;
    };
    in_stretches ? pool.run_in_stretches(count, body) : pool.run(count, body);
    for (int64_t task = 0; task < count; ++task)
      CHECK(seen[task] == 1 && thread_of[task] >= 0 && thread_of[task] < pool.size());
  }
}

}  // namespace

TEST(pool_runs_every_task_once_in_many_short_jobs) {
  for (int threads : {1, 2, 3, 7}) {
    sf::Pool pool(threads);
    for (int job = 0; job < 1500; ++job) run_once_each(pool, job % 11);
  }
}

TEST(pool_survives_oversubscription) {
  sf::Pool pool(32);
  for (int job = 0; job < 40; ++job) run_once_each(pool, 100);
}

TEST(pool_wakes_after_parking) {
  sf::Pool pool(3);
  for (int job = 0; job < 20; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    run_once_each(pool, 5);
  }
}

TEST(pool_opens_and_closes) {
  for (int round = 0; round < 60; ++round) {
    sf::Pool pool(1 + round % 8);
    if (round % 2) run_once_each(pool, round);
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
