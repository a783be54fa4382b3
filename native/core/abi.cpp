// The library's door: names to operations, errors to words, memory, contexts.
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "core/context.h"
#include "core/features.h"
#include "core/sizes.h"
#include "permission.h"  // of the variant

namespace {

using sf::Context;
using sf::Error;

struct Operation {
  const char* name;
  int64_t args_bytes;
  Error (*run)(Context&, void*);
};

constexpr Operation kOperations[] = {
#define SF_ROW(name)                \
  {#name, sizeof(sf_##name##_args), \
   [](Context& context, void* args) { return sf::op_##name(context, *static_cast<sf_##name##_args*>(args)); }},
    SF_OPS(SF_ROW)
#undef SF_ROW
};
constexpr int32_t kNumOperations = sizeof(kOperations) / sizeof(kOperations[0]);
constexpr int64_t kHugePage = int64_t(2) << 20;

int64_t round_up(int64_t value, int64_t unit) { return sf::divide_up(value, unit) * unit; }

// A set of numbers as the kernel takes it.
class BitMask {
 public:
  BitMask(const int32_t* numbers, int64_t count) : words_(*std::max_element(numbers, numbers + count) / kBits + 1) {
    for (int64_t i = 0; i < count; ++i) words_[numbers[i] / kBits] |= 1ul << numbers[i] % kBits;
  }
  const unsigned long* words() const { return words_.data(); }
  size_t bytes() const { return words_.size() * sizeof(words_[0]); }

 private:
  static constexpr int32_t kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> words_;
};

}  // namespace

extern "C" {

const char* sf_variant(void) { return SUREFOOT_VARIANT_NAME; }

uint64_t sf_features(void) { return sf::features(); }

int32_t sf_op(const char* name) {
  for (int32_t op = 0; op < kNumOperations; ++op)
    if (!std::strcmp(kOperations[op].name, name)) return op;
  return -1;
}

int64_t sf_args_bytes(int32_t op) { return op >= 0 && op < kNumOperations ? kOperations[op].args_bytes : -1; }

const char* sf_error(int32_t code) {
  switch (code) {
    case sf::kOk:
      return "ok";
    case sf::kUnknownOp:
      return "no such operation";
    case sf::kBadShape:
      return "a size or stride does not fit";
    case sf::kNullPointer:
      return "a required array is missing";
    case sf::kMisaligned:
      return "an array is not aligned to 64 bytes";
    case sf::kBadOption:
      return "an option has no meaning here";
    case sf::kBadPacked:
      return "packed weights have another layout, shape or version";
    case sf::kNoMemory:
      return "out of memory";
    case sf::kStopped:
      return "stopped, as was asked";
    case sf::kOutOfRange:
      return "a number or index lies outside its range";
  }
  return "unknown error";
}

sf_context* sf_open(int32_t num_threads, const int32_t* node_of_thread) {
  if (num_threads < 1 || num_threads > 1024 || !sf::ask_permission()) return nullptr;
  const int32_t* const end = node_of_thread ? node_of_thread + num_threads : nullptr;
  if (std::any_of(node_of_thread, end, [&](int32_t node) { return node < 0 || node >= num_threads; })) return nullptr;
  try {
    return new sf_context(num_threads, std::vector<int>(node_of_thread, end));
  } catch (...) {
    return nullptr;
  }
}

void sf_close(sf_context* context) { delete context; }

int32_t sf_run(sf_context* context, const sf_call* calls, int64_t count, int64_t* failed) {
  for (int64_t i = 0; i < count; ++i) {
    const sf_call& call = calls[i];
    Error error = sf::kUnknownOp;
    if (i > 0 && context->stop.load(std::memory_order_relaxed)) {
      error = sf::kStopped;
    } else if (call.op >= 0 && call.op < kNumOperations) {
      try {
        error = kOperations[call.op].run(*context, call.args);
      } catch (const std::bad_alloc&) {
        error = sf::kNoMemory;
      }
    }
    if (error != sf::kOk) {
      if (failed) *failed = i;
      return error;
    }
  }
  return sf::kOk;
}

void sf_stop(sf_context* context, int32_t stop) { context->stop.store(stop, std::memory_order_relaxed); }

void sf_use_threads(sf_context* context, int32_t num_threads) { context->pool.use(num_threads); }

int32_t sf_bind(sf_context* context, int32_t node, const int32_t* cpus, int64_t num_cpus) {
  if (node < 0 || num_cpus < 1 || std::any_of(cpus, cpus + num_cpus, [](int32_t cpu) { return cpu < 0; }))
    return EINVAL;
  const BitMask allowed(cpus, num_cpus);
  sf::Pool& pool = context->pool;
  std::atomic<int> missing{pool.size()}, error{0};
  pool.run(pool.size(), [&](int64_t, int thread) {
    missing.fetch_sub(1);
    while (missing.load() > 0) std::this_thread::yield();  // so that each thread takes one task
    if (thread == 0 || pool.node_of(thread) != static_cast<size_t>(node)) return;
    if (sched_setaffinity(0, allowed.bytes(), reinterpret_cast<const cpu_set_t*>(allowed.words()))) error = errno;
  });
  return error;
}

void* sf_alloc(int64_t bytes) {
  if (bytes <= 0) return nullptr;
  // One huge page more than asked for, so that the returned address can be aligned; the rest is never touched.
  const int64_t whole = round_up(bytes, kHugePage);
  void* raw = mmap(nullptr, whole + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t wanted = (start + kHugePage - 1) / kHugePage * kHugePage;
  if (wanted > start) munmap(raw, wanted - start);
  const uintptr_t end = start + whole + kHugePage;
  if (end > wanted + whole) munmap(reinterpret_cast<void*>(wanted + whole), end - wanted - whole);
  madvise(reinterpret_cast<void*>(wanted), whole, MADV_HUGEPAGE);
  return reinterpret_cast<void*>(wanted);
}

void sf_free(void* data, int64_t bytes) {
  if (data) munmap(data, round_up(bytes, kHugePage));
}

int32_t sf_prefer_nodes(void* data, int64_t bytes, const int32_t* nodes, int64_t num_nodes) {
  if (num_nodes < 1 || std::any_of(nodes, nodes + num_nodes, [](int32_t node) { return node < 0; })) return EINVAL;
  const uintptr_t page = sysconf(_SC_PAGESIZE), start = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (start + page / 2) / page * page, last = (start + bytes + page / 2) / page * page;
  const BitMask mask(nodes, num_nodes);
  // The kernel reads one bit less than it is told.
  const long failed = syscall(SYS_mbind, first, last - first, num_nodes == 1 ? MPOL_PREFERRED : MPOL_INTERLEAVE,
                              mask.words(), 8 * mask.bytes() + 1, 0);
  return failed ? errno : 0;
}

}  // extern "C"
