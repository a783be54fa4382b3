// Routing, the way back from the experts, and the float matmul.
#include "core/ops.h"
#include "tests/testing.h"

using namespace testing;

TEST(route_every_scoring) {
  constexpr int64_t kRows = 37;
  for (const int64_t experts : {1, 7, 16, 33})
    for (const int32_t scoring : {0, 1, 2})
      same_for_all_threads(kRows * ((experts + 1) / 2), [&](Session& session, const Buffer<float>& weights) {
        const int64_t k = (experts + 1) / 2;
        Buffer<float> logits(kRows * experts), bias(experts);
        Numbers(20).fill(logits);
        Numbers(21).fill(bias);
        Buffer<int64_t> ids(kRows * k);
        sf_route_args args{logits.data(), bias.data(), bias.data(), ids.data(), weights.data(), kRows, experts, k, 1, 1,
                           scoring,       1,           1.0f,        1};
        CHECK(session.run("route", args) == sf::kOk);
        for (int64_t i = 0; i < ids.size(); ++i) CHECK(ids[i] >= 0 && ids[i] < experts);
        args.k = experts + 1;
        CHECK(session.run("route", args) == sf::kBadShape);
        args.k = k, args.scoring = 5;
        CHECK(session.run("route", args) == sf::kBadOption);
      });
}

TEST(route_by_groups) {
  constexpr int64_t kRows = 37, kPicks = 2;
  struct Shape {
    int64_t experts, groups, kept;
    int32_t best;
  };
  for (const auto [experts, groups, kept, best] : {Shape{2, 2, 2, 1}, Shape{6, 3, 1, 2}, Shape{33, 11, 4, 2}})
    same_for_all_threads(kRows * kPicks, [&](Session& session, const Buffer<float>& weights) {
      Buffer<float> logits(kRows * experts);
      Numbers(24).fill(logits);
      Buffer<int64_t> ids(kRows * kPicks);
      sf_route_args args{logits.data(), nullptr, nullptr, ids.data(), weights.data(), kRows, experts, kPicks,
                         groups,        kept,    2,       0,          1.0f,           best};
      CHECK(session.run("route", args) == sf::kOk);
      for (int64_t i = 0; i < ids.size(); ++i) CHECK(ids[i] >= 0 && ids[i] < experts);
      for (const int64_t bad : {int64_t{-1}, int64_t{0}, groups + 1, experts + 1}) {
        args.groups = bad;
        CHECK(session.run("route", args) == sf::kBadShape);
      }
      args.groups = groups;
      for (const int64_t bad : {int64_t{0}, groups + 1}) {
        args.kept_groups = bad;
        CHECK(session.run("route", args) == sf::kBadShape);
      }
      args.kept_groups = 1, args.k = experts / groups + 1;
      CHECK(session.run("route", args) == sf::kBadShape);
      args.k = 1, args.group_best = static_cast<int32_t>(experts / groups + 1);
      CHECK(session.run("route", args) == sf::kBadShape);
      args.group_best = 0;
      CHECK(session.run("route", args) == sf::kBadOption);
    });
}

TEST(combine_odd_widths) {
  constexpr int64_t kRows = 11, kPicks = 3, kSources = 6;
  for (const int64_t cols : {1, 16, 33})
    same_for_all_threads(kRows * cols, [&](Session& session, const Buffer<float>& y) {
      Buffer<float> x(kSources * cols), weights(kRows * kPicks), residual(kRows * cols);
      Buffer<int64_t> places(kRows * kPicks);
      Numbers numbers(22);
      for (const auto* buffer : {&x, &weights, &residual}) numbers.fill(*buffer);
      for (int64_t i = 0; i < places.size(); ++i) places[i] = (i * 5) % kSources;
      sf_combine_args args{x.data(), places.data(), weights.data(), residual.data(),
                           y.data(), kRows,         cols,           kPicks,
                           kSources, cols,          cols,           cols};
      CHECK(session.run("combine", args) == sf::kOk);
      places[7] = kSources;
      CHECK(session.run("combine", args) == sf::kOutOfRange);
    });
}

TEST(float_linear_odd_shapes) {
  struct Shape {
    int64_t rows, n, k;
  };
  for (const auto [rows, n, k] : {Shape{1, 1, 1}, Shape{3, 25, 17}, Shape{66, 49, 33}, Shape{5, 7, 130}})
    for (const int32_t dtype : {0, 1})
      same_for_all_threads(rows * n, [&](Session& session, const Buffer<float>& y) {
        Buffer<float> x(rows * k), bias(n), wide(dtype == 0 ? n * k : 1);
        Buffer<uint16_t> narrow(dtype == 1 ? n * k : 1);
        Numbers numbers(23);
        for (const auto* buffer : {&x, &bias, &wide}) numbers.fill(*buffer);
        for (int64_t i = 0; i < narrow.size(); ++i) narrow[i] = static_cast<uint16_t>(0x3F00 + numbers.below(256));
        const void* w = dtype == 0 ? static_cast<const void*>(wide.data()) : narrow.data();
        sf_float_linear_args args{x.data(), w, bias.data(), y.data(), rows, n, k, k, k, n, dtype, 0};
        CHECK(session.run("float_linear", args) == sf::kOk);
        args.dtype = 2;
        CHECK(session.run("float_linear", args) == sf::kBadOption);
      });
}

TEST(group_experts_sorts_stably) {
  constexpr int64_t kRows = 9, kPicks = 2, kExperts = 5;
  Session session(1);
  Buffer<int64_t> ids(kRows * kPicks), sources(ids.size()), starts(kExperts + 1), places(ids.size());
  for (int64_t i = 0; i < ids.size(); ++i) ids[i] = (i * 3) % (kExperts - 1);  // the last expert has no rows
  sf_group_experts_args args{ids.data(), sources.data(), starts.data(), places.data(), kRows, kPicks, kExperts};
  CHECK(session.run("group_experts", args) == sf::kOk);
  CHECK(starts[0] == 0 && starts[kExperts - 1] == ids.size() && starts[kExperts] == ids.size());
  for (int64_t i = 0; i < ids.size(); ++i) {
    const int64_t place = places[i], expert = ids[i];
    CHECK(sources[place] == i / kPicks);
    CHECK(starts[expert] <= place && place < starts[expert + 1]);
    CHECK(place == starts[expert] || sources[place - 1] <= sources[place]);
  }
  ids[3] = kExperts;
  CHECK(session.run("group_experts", args) == sf::kOutOfRange);
}
