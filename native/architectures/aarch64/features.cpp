// Features of 64-bit ARM, as the operating system tells them: user programs may not read the identification registers.
#include "core/features.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#else
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace sf {
namespace {

#if defined(__APPLE__)  // written from the documentation, never run
bool says(const char* name) {
  int value = 0;
  size_t bytes = sizeof value;
  return sysctlbyname(name, &value, &bytes, nullptr, 0) == 0 && value;
}
bool has_dot_product() { return says("hw.optional.arm.FEAT_DotProd"); }
bool has_int8_matrix() { return says("hw.optional.arm.FEAT_I8MM"); }
#else
bool has_dot_product() { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }
bool has_int8_matrix() { return getauxval(AT_HWCAP2) & HWCAP2_I8MM; }
#endif

}  // namespace

uint64_t features() {
  uint64_t found = 0;
  if (has_dot_product()) found |= kDotProduct;
  if (has_int8_matrix()) found |= kInt8Matrix;
  return found;
}

}  // namespace sf
