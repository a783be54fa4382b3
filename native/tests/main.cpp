// Runs every test with buffers on the heap, then with buffers before a guard page. Built once per variant.
// Prints a hash of each test's numbers, for comparing machines. `brief`: on the heap only.
// `overrun`, `overrun-guarded`, `overflow` and `race` commit that fault instead, to show that it would be found.
#include <cinttypes>
#include <string_view>

#include "core/ops.h"
#include "core/pool.h"
#include "tests/testing.h"

namespace {

void overrun() {
  testing::Buffer<float> buffer(3);
  const volatile float* data = buffer.data();
  (void)data[3];
}

void overflow() {
  volatile int32_t most = INT32_MAX;
  most = most + 1;
}

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

void commit(std::string_view fault) {
  if (fault == "overrun-guarded") testing::place = testing::Place::kBeforeGuard;
  if (fault.substr(0, 7) == "overrun") overrun();
  if (fault == "overflow") overflow();
  if (fault == "race") race();
}

void run_all(testing::Place place) {
  testing::place = place;
  for (const auto& test : testing::tests()) {
    std::printf("%s %s ", test.name, place == testing::Place::kHeap ? "heap" : "guarded");
    std::fflush(stdout);
    testing::digest = 0;
    test.body();
    std::printf("%016" PRIx64 "\n", testing::digest);
  }
}

}  // namespace

int main(int count, char** words) {
  const std::string_view word = count > 1 ? words[1] : "";
  if (!word.empty() && word != "brief") {
    commit(word);
    return 0;
  }
  run_all(testing::Place::kHeap);
  if (word != "brief") run_all(testing::Place::kBeforeGuard);
#define SF_CHECK(name) CHECK(testing::succeeded().at(sf_op(#name)));  // a new operation needs a test here
  SF_OPS(SF_CHECK)
#undef SF_CHECK
  std::printf("%s: %zu tests passed\n", sf_variant(), testing::tests().size());
}
