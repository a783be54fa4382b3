#include "core/ops.h"
#include "tests/testing.h"

using namespace testing;

TEST(abi_names_its_operations) {
  CHECK(sf_op("no such operation") == -1);
  CHECK(sf_args_bytes(-1) == -1);
  CHECK(sf_args_bytes(1 << 20) == -1);
#define SF_CHECK(name) CHECK(sf_args_bytes(sf_op(#name)) == sizeof(sf_##name##_args));
  SF_OPS(SF_CHECK)
#undef SF_CHECK
}

TEST(abi_explains_its_errors) {
  for (int32_t code = 0; code <= sf::kOutOfRange; ++code) CHECK(std::strcmp(sf_error(code), "unknown error") != 0);
  CHECK(std::strcmp(sf_error(-5), "unknown error") == 0);
}

TEST(abi_opens_and_closes_contexts) {
  CHECK(!sf_open(0, nullptr));
  CHECK(!sf_open(-3, nullptr));
  CHECK(!sf_open(100000, nullptr));
  const int32_t nodes[] = {1, 0, 1}, no_node[] = {0, -1, 0}, too_high[] = {0, 3, 0};
  CHECK(!sf_open(3, no_node) && !sf_open(3, too_high));
  sf_close(sf_open(3, nodes));
  sf_close(nullptr);
  for (int round = 0; round < 30; ++round) sf_close(sf_open(1 + round % 5, nullptr));
}

TEST(abi_stops_at_the_first_failure) {
  Session session(2);
  sf_peak_args good{1, 0, 0, 0, 0}, bad{0, 0, 0, 0, 0};
  const int32_t op = sf_op("peak");
  const sf_call calls[] = {{op, 0, &good}, {op, 0, &bad}, {op, 0, &good}};
  int64_t failed = -1;
  CHECK(sf_run(session.context(), calls, 3, &failed) == sf::kBadShape && failed == 1);
  CHECK(sf_run(session.context(), calls, 1, &failed) == sf::kOk);
  const sf_call unknown{99999, 0, nullptr};
  CHECK(sf_run(session.context(), &unknown, 1, &failed) == sf::kUnknownOp && failed == 0);
  CHECK(sf_run(session.context(), &unknown, 0, nullptr) == sf::kOk);
}

TEST(abi_allocates_aligned_memory) {
  CHECK(!sf_alloc(0));
  CHECK(!sf_alloc(-1));
  for (const int64_t bytes : {int64_t(1), int64_t(4097), int64_t(5) << 20}) {
    auto* data = static_cast<char*>(sf_alloc(bytes));
    CHECK(data && reinterpret_cast<uintptr_t>(data) % (2 << 20) == 0);
    data[0] = data[bytes - 1] = 1;
    sf_free(data, bytes);
  }
  sf_free(nullptr, 10);
}
