// The list of operations: a name here, a struct sf_<name>_args in surefoot.h, a function op_<name> in kernels/.
#pragma once
#include "surefoot.h"

#define SF_OPS(X) \
  X(quantise) \
  X(kv_write) \
  X(kv_copy) \
  X(attention)

namespace sf {
struct Context;

enum Error : int32_t {
  kOk = 0,
  kUnknownOp,
  kBadShape,
  kNullPointer,
  kMisaligned,
  kBadOption,
  kBadPacked,
  kNoMemory,
  kOutOfRange,
};

#define SF_DECLARE(name) Error op_##name(Context&, sf_##name##_args&);
SF_OPS(SF_DECLARE)
#undef SF_DECLARE
}  // namespace sf
