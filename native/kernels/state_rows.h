// Rows of requests that go on from states: what the operations over states check alike.
#pragma once
#include "core/check.h"

namespace sf {

// The rows are trusted no more than any other argument: a wrong slot is refused before anything is read or written.
inline Error check_state_rows(const sf_state_rows& rows) {
  SF_REQUIRE(rows.rows >= 0 && rows.chunks >= 0 && rows.slots >= 0, kBadShape);
  SF_REQUIRE(rows.chunks == 0 || (rows.starts && rows.loads && rows.saves), kNullPointer);
  for (int64_t chunk = 0; chunk < rows.chunks; ++chunk) {
    SF_REQUIRE(rows.starts[chunk] >= 0 && rows.starts[chunk] <= rows.starts[chunk + 1], kBadShape);
    SF_REQUIRE(rows.loads[chunk] < rows.slots, kOutOfRange);
  }
  SF_REQUIRE(rows.chunks == 0 || rows.starts[rows.chunks] <= rows.rows, kBadShape);
  for (int64_t row = 0; row < rows.rows; ++row) SF_REQUIRE(rows.saves[row] < rows.slots, kOutOfRange);
  return kOk;
}

}  // namespace sf
