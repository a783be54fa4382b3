// The pool's tests by themselves, which are compiled in seconds: `N` times over, or `race` to commit that fault.
#include <string_view>

#include "tests/testing.h"

void race();

int main(int count, char** words) {
  const std::string_view word = count > 1 ? words[1] : "1";
  if (word == "race") {
    race();
    return 0;
  }
  for (int round = 0; round < std::atoi(word.data()); ++round) testing::run_all(testing::Place::kHeap);
  std::printf("pool: %zu tests passed\n", testing::tests().size());
}
