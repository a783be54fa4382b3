#include <sched.h>

#include <cerrno>

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

TEST(abi_binds_the_threads_of_a_node) {
  cpu_set_t before;
  CHECK(!sched_getaffinity(0, sizeof before, &before));
  Session session(4, kNodeOfThread);  // 2, 0, 0, 3
  int32_t cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  for (const int32_t node : {0, 1, 2, 3}) CHECK(sf_bind(session.context(), node, &cpu, 1) == 0);
  cpu_set_t after;
  CHECK(!sched_getaffinity(0, sizeof after, &after) && CPU_EQUAL(&before, &after));  // the caller runs where it did
  const int32_t none[] = {-1}, far = 1 << 20;
  CHECK(sf_bind(session.context(), 0, none, 1) == EINVAL);
  CHECK(sf_bind(session.context(), 0, none, 0) == EINVAL);
  CHECK(sf_bind(session.context(), 0, &far, 1) != 0);
}

TEST(abi_tells_where_the_panels_of_a_node_end) {
  Session session(5, kNodeOfThread);  // of node 0 are three threads, of nodes 2 and 3 one each
  constexpr int64_t kOutputs = 10 * 32 - 5, kDepth = 70;
  const int64_t bytes = sf_packed_bytes(kOutputs, kDepth, 8, 1, 0, 0, 8, 16), panel = 2 * 2048;
  const auto end = [&](int32_t node) { return sf_node_end(session.context(), node, kOutputs, bytes); };
  CHECK(end(0) == bytes - 4 * panel && end(1) == end(0) && end(2) == bytes - 2 * panel && end(3) == bytes);
  CHECK(end(-1) == -1 && end(4) == -1);
  CHECK(sf_node_end(session.context(), 0, 0, bytes) == -1 && sf_node_end(session.context(), 0, kOutputs, 0) == -1);
}

TEST(abi_asks_for_pages_of_a_node) {
  constexpr int64_t kBytes = 1 << 20;
  auto* data = static_cast<char*>(sf_alloc(kBytes));
  const int32_t first[] = {0}, both[] = {0, 0}, none[] = {-1};
  for (const int64_t count : {1, 2}) {
    const int32_t error = sf_prefer_nodes(data + 64, kBytes - 128, count == 1 ? first : both, count);
    CHECK(error == 0 || error == EPERM || error == ENOSYS);  // a container's filter, a kernel without nodes
  }
  CHECK(sf_prefer_nodes(data, kBytes, first, 0) == EINVAL && sf_prefer_nodes(data, kBytes, none, 1) == EINVAL);
  data[kBytes - 1] = 1;
  sf_free(data, kBytes);
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
