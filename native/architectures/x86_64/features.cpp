// Features of x86-64 by cpuid, where the operating system saves their registers.
#include "core/features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tile_permission.h"

namespace sf {
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}

// Which register states the OS saves across a context switch (XCR0).
uint64_t saved_states() {
  if (!(cpuid(1, 0).c & (1u << 27))) return 0;  // OSXSAVE
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t(high) << 32) | low;
}

bool all(uint64_t value, uint64_t bits) { return (value & bits) == bits; }

constexpr uint64_t kSavedAvx = 0x6, kSavedAvx512 = 0xE6, kSavedTiles = 0x60000;
constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)

}  // namespace

bool ask_for_tiles() { return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0; }

uint64_t features() {
  const Registers one = cpuid(1, 0), seven = cpuid(7, 0);
  const uint64_t saved = saved_states();
  uint64_t found = 0;
  constexpr uint64_t kFma = 1u << 12, kF16c = 1u << 29;
  if (all(saved, kSavedAvx) && all(one.c, kFma | kF16c) && all(seven.b, 1u << 5)) found |= kAvx2;
  // F is bit 16, DQ 17, BW 30, VL 31
  if ((found & kAvx2) && all(saved, kSavedAvx512) && all(seven.b, (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31)))
    found |= kAvx512;
  if ((found & kAvx512) && all(seven.c, 1u << 11)) found |= kAvx512Vnni;
  if ((found & kAvx2) && seven.a >= 1 && all(cpuid(7, 1).a, 1u << 4)) found |= kAvxVnni;
  if (all(saved, kSavedTiles) && all(seven.d, 1u << 24)) {
    if (all(seven.d, 1u << 25)) found |= kAmxInt8;
    if (all(seven.d, 1u << 22)) found |= kAmxBf16;
    if ((found & kAmxInt8) && ask_for_tiles()) found |= kAmxPermitted;
  }
#ifdef SUREFOOT_EMULATE_VNNI  // native/tests/emulated_vnni.h
  if (found & kAvx2) found |= kAvxVnni;
  if (found & kAvx512) found |= kAvx512Vnni;
#endif
  return found;
}

}  // namespace sf
