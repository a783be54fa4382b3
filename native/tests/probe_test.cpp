#include "core/ops.h"
#include "tests/testing.h"

using namespace testing;

TEST(read_bandwidth_stays_inside_its_buffer) {
  for (const int threads : kThreads) {
    Session session(threads);
    for (const int64_t bytes : {int64_t(512), int64_t(3) * 512, (int64_t(4) << 20) + 512}) {
      Lines<char> data(bytes);
      sf_read_bandwidth_args args{data.data(), bytes, 2, 0};
      CHECK(session.run("read_bandwidth", args) == sf::kOk && args.seconds > 0);
    }
  }
}

TEST(read_bandwidth_refuses_bad_arguments) {
  Session session(1);
  Lines<char> data(1024);
  sf_read_bandwidth_args none{nullptr, 512, 1, 0}, odd{data.data(), 100, 1, 0}, off{data.data() + 8, 512, 1, 0},
      never{data.data(), 512, 0, 0};
  CHECK(session.run("read_bandwidth", none) == sf::kNullPointer);
  CHECK(session.run("read_bandwidth", odd) == sf::kBadShape);
  CHECK(session.run("read_bandwidth", off) == sf::kMisaligned);
  CHECK(session.run("read_bandwidth", never) == sf::kBadShape);
}

TEST(peak_counts_each_threads_work) {
  double one = 0;
  for (const int threads : kThreads) {
    Session session(threads);
    for (const int32_t kind : {0, 1}) {
      sf_peak_args args{50, 0, 0, kind, 0};
      CHECK(session.run("peak", args) == sf::kOk && args.seconds > 0);
      if (kind == 0 && threads == 1) one = args.operations;
      if (kind == 0) CHECK(args.operations == one * threads);
    }
    sf_peak_args unknown{50, 0, 0, 3, 0};
    CHECK(session.run("peak", unknown) == sf::kBadOption);
  }
}
