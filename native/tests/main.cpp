// Runs every test with buffers on the heap, then with buffers before a guard page. Built once per variant.
// Prints a hash of each test's numbers, for comparing machines. `brief`: on the heap only.
// `overrun`, `overrun-guarded`, `overflow` and `race` commit that fault instead, to show that it would be found.
#include <string_view>

#include "core/ops.h"
#include "tests/testing.h"

void race();  // of the pool's tests

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

void commit(std::string_view fault) {
  if (fault == "overrun-guarded") testing::place = testing::Place::kBeforeGuard;
  if (fault.substr(0, 7) == "overrun") overrun();
  if (fault == "overflow") overflow();
  if (fault == "race") race();
}

}  // namespace

int main(int count, char** words) {
  const std::string_view word = count > 1 ? words[1] : "";
  if (!word.empty() && word != "brief") {
    commit(word);
    return 0;
  }
  testing::run_all(testing::Place::kHeap);
  if (word != "brief") testing::run_all(testing::Place::kBeforeGuard);
#define SF_CHECK(name) CHECK(testing::succeeded().at(sf_op(#name)));  // a new operation needs a test here
  SF_OPS(SF_CHECK)
#undef SF_CHECK
  std::printf("%s: %zu tests passed\n", sf_variant(), testing::tests().size());
}
