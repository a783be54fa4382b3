#include "core/ops.h"
#include "tests/testing.h"

using namespace testing;

namespace {

struct Form {
  int32_t limbs, group;
};
constexpr Form kForms[] = {{2, 0}, {1, 0}, {1, 64}, {1, 128}};

int32_t quantise(Session& session, const Buffer<float>& x, int64_t rows, int64_t cols, const Rows& out) {
  sf_quantise_args args{x.data(), rows, cols, cols, out.struct_};
  return session.run("quantise", args);
}

}  // namespace

TEST(quantise_odd_tails_and_thread_counts) {
  for (const auto [limbs, group] : kForms)
    for (const int64_t cols : {1, 3, 15, 16, 17, 63, 64, 65, 127, 200, 257}) {
      constexpr int64_t kRows = 5;
      Buffer<float> x(kRows * cols);
      Numbers(7).fill(x);
      Rows want(kRows, cols, limbs, group);
      for (const int threads : kThreads) {
        Session session(threads);
        Rows got(kRows, cols, limbs, group);
        CHECK(quantise(session, x, kRows, cols, got) == sf::kOk);
        if (threads == 1) CHECK(quantise(session, x, kRows, cols, want) == sf::kOk);
        CHECK(got.same(want));
      }
    }
}

TEST(quantise_no_rows) {
  Session session(2);
  Buffer<float> x(4);
  Rows out(1, 4, 2, 0);
  CHECK(quantise(session, x, 0, 4, out) == sf::kOk);
}

TEST(quantise_refuses_bad_arguments) {
  Session session(1);
  Buffer<float> x(70);
  Rows out(1, 70, 2, 0);
  const sf_quantise_args good{x.data(), 1, 70, 70, out.struct_};
  auto code = [&](auto change) {
    sf_quantise_args args = good;
    change(args);
    return session.run("quantise", args);
  };
  CHECK(code([](auto&) {}) == sf::kOk);
  CHECK(code([](auto& a) { a.x = nullptr; }) == sf::kNullPointer);
  CHECK(code([](auto& a) { a.out.values = nullptr; }) == sf::kNullPointer);
  CHECK(code([](auto& a) { a.out.scales = nullptr; }) == sf::kNullPointer);
  CHECK(code([](auto& a) { a.rows = -1; }) == sf::kBadShape);
  CHECK(code([](auto& a) { a.cols = 0; }) == sf::kBadShape);
  CHECK(code([](auto& a) { a.x_stride = 69; }) == sf::kBadShape);
  CHECK(code([](auto& a) { a.out.stride = 64; }) == sf::kBadShape);
  CHECK(code([](auto& a) { a.out.stride = 100; }) == sf::kBadShape);
  CHECK(code([](auto& a) { a.out.values += 1; }) == sf::kMisaligned);
  CHECK(code([](auto& a) { a.out.limbs = 3; }) == sf::kBadOption);
  CHECK(code([](auto& a) { a.out.group = 64; }) == sf::kBadOption);
}
