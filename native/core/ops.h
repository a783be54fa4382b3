// The list of operations: a name here, a struct sf_<name>_args in surefoot.h, a function op_<name> in kernels/.
#pragma once
#include "surefoot.h"

#define SF_OPS(X)   \
  X(quantise)       \
  X(elementary)     \
  X(norm)           \
  X(rope_table)     \
  X(rope)           \
  X(glu)            \
  X(softcap)        \
  X(add)            \
  X(embed)          \
  X(pack)           \
  X(pack_blocks)    \
  X(linear)         \
  X(linear_experts) \
  X(read_bandwidth) \
  X(peak)           \
  X(float_linear)   \
  X(route)          \
  X(group_experts)  \
  X(combine)        \
  X(sample)         \
  X(top_logprobs)   \
  X(kv_write)       \
  X(kv_copy)        \
  X(attention)      \
  X(short_conv)     \
  X(delta_gates)    \
  X(delta_rule)     \
  X(ssd_gates)      \
  X(ssd_scan)       \
  X(gated_norm)     \
  X(sparsify)       \
  X(match_rms)      \
  /* one name a line */

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
  kStopped,
};

#define SF_DECLARE(name) Error op_##name(Context&, sf_##name##_args&);
SF_OPS(SF_DECLARE)
#undef SF_DECLARE
}  // namespace sf
