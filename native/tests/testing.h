// A few lines of test framework, and buffers that end exactly where their data ends.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

#include "surefoot.h"

namespace testing {

struct Test {
  const char* name;
  void (*body)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

struct Register {
  Register(const char* name, void (*body)()) { tests().push_back({name, body}); }
};

[[noreturn]] inline void fail(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
  std::abort();
}

#define TEST(name)                                             \
  static void name();                                          \
  static const testing::Register register_##name(#name, name); \
  static void name()
#define CHECK(condition) \
  if (!(condition)) testing::fail(__FILE__, __LINE__, #condition)

// Where buffers lie. On the heap AddressSanitizer sees what compiled code touches beside them. Before a page that
// nobody may touch, the processor also sees what inline assembly and masked or tile instructions touch after them.
enum class Place { kHeap, kBeforeGuard };
inline Place place = Place::kHeap;

// A hash of what buffers held when they were given back. Tests use the same numbers every time, so it is the same on
// every machine and in every variant.
inline uint64_t digest = 0;
inline void add_to_digest(uint64_t word) {
  digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
  digest ^= digest >> 29;
}
template <class T>
void add_to_digest(const T* data, int64_t count) {
  constexpr bool kReal = std::is_floating_point_v<T>;
  constexpr int64_t kAtOnce = kReal ? 1 : 8 / sizeof(T);
  for (int64_t i = 0; i < count; i += kAtOnce) {
    uint64_t word = 0;
    std::memcpy(&word, data + i, sizeof(T) * (count - i < kAtOnce ? count - i : kAtOnce));
    if (kReal && data[i] != data[i]) word = 1;  // which NaN an operation makes is not promised
    add_to_digest(word);
  }
}

// `count` elements and not a byte more; 64-byte aligned if `Aligned` (only whole lines then end at the guard).
template <class T, bool Aligned = false>
class Buffer {
 public:
  explicit Buffer(int64_t count) : count_(count), guarded_(place == Place::kBeforeGuard) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    if (guarded_) {
      const int64_t page = sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
      mapped_ = whole + page;
      raw_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      CHECK(raw_ != MAP_FAILED);
      CHECK(mprotect(static_cast<char*>(raw_) + whole, page, PROT_NONE) == 0);
      int64_t start = whole - bytes;
      if (Aligned) start = start / 64 * 64;
      data_ = reinterpret_cast<T*>(static_cast<char*>(raw_) + start);
    } else {
      raw_ = Aligned ? ::operator new(bytes, std::align_val_t(64)) : ::operator new(bytes);
      data_ = static_cast<T*>(raw_);
    }
    std::memset(static_cast<void*>(data_), 0, bytes);
  }
  ~Buffer() {
    if constexpr (std::is_arithmetic_v<T>) add_to_digest(data_, count_);
    if (guarded_) munmap(raw_, mapped_);
    else if (Aligned) ::operator delete(raw_, std::align_val_t(64));
    else ::operator delete(raw_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const { return data_; }
  int64_t size() const { return count_; }
  T& operator[](int64_t i) const { return data_[i]; }
  bool same(const Buffer& other) const {
    return count_ == other.count_ && !std::memcmp(data_, other.data_, count_ * sizeof(T));
  }

 private:
  T* data_;
  void* raw_;
  int64_t count_, mapped_ = 0;
  bool guarded_;
};

template <class T>
using Lines = Buffer<T, true>;

// Any numbers will do, the same ones every time.
class Numbers {
 public:
  explicit Numbers(uint32_t seed = 1) : state_(seed) {}
  uint32_t bits() {
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 8;
  }
  int below(int bound) { return static_cast<int>(bits() % static_cast<uint32_t>(bound)); }
  float real() { return static_cast<float>(below(2001) - 1000) / 250.0f; }
  void fill(const Buffer<float>& out) {
    for (int64_t i = 0; i < out.size(); ++i) out[i] = real();
  }

 private:
  uint32_t state_;
};

inline void run_all(Place where) {
  place = where;
  for (const auto& test : tests()) {
    std::printf("%s %s ", test.name, where == Place::kHeap ? "heap" : "guarded");
    std::fflush(stdout);
    digest = 0;
    test.body();
    std::printf("%016" PRIx64 "\n", digest);
  }
}

// Operations that have succeeded at least once, by number.
inline std::vector<bool>& succeeded() {
  static std::vector<bool> ops;
  return ops;
}

// A context with so many threads. run() gives the library's own answer.
class Session {
 public:
  explicit Session(int threads, const int32_t* node_of_thread = nullptr) : context_(sf_open(threads, node_of_thread)) {
    CHECK(context_);
  }
  ~Session() { sf_close(context_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  template <class Args>
  int32_t run(const char* name, Args& args) {
    const sf_call call{sf_op(name), 0, &args};
    CHECK(call.op >= 0 && sf_args_bytes(call.op) == sizeof(Args));
    const int32_t code = sf_run(context_, &call, 1, nullptr);
    if (code == 0) {
      if (succeeded().size() <= static_cast<size_t>(call.op)) succeeded().resize(call.op + 1);
      succeeded()[call.op] = true;
    }
    return code;
  }
  sf_context* context() const { return context_; }

 private:
  sf_context* context_;
};

inline constexpr int kThreads[] = {1, 2, 7};
inline constexpr int32_t kNodeOfThread[] = {2, 0, 0, 3, 0};  // node 1 has no thread

// body(session, out) fills out; it must do so alike with every number of threads, and with threads of several nodes.
template <class T = float, class Body>
void same_for_all_threads(int64_t count, const Body& body) {
  Buffer<T> want(count);
  for (const int threads : kThreads) {
    Session session(threads);
    Buffer<T> got(count);
    body(session, got);
    if (threads == 1) std::memcpy(static_cast<void*>(want.data()), got.data(), sizeof(T) * count);
    CHECK(got.same(want));
  }
  Session of_nodes(5, kNodeOfThread);
  Buffer<T> got(count);
  body(of_nodes, got);
  CHECK(got.same(want));
}

// Quantised rows with memory of their own.
struct Rows {
  Rows(int64_t rows, int64_t cols, int32_t limbs, int32_t group)
      : stride((cols + 63) / 64 * 64), values(rows * limbs * stride),
        scales(rows * (group ? (cols + group - 1) / group : 1)),
        struct_{values.data(), scales.data(), stride, limbs, group} {}
  int64_t stride;
  Lines<int8_t> values;
  Buffer<float> scales;
  sf_activations struct_;
  bool same(const Rows& other) const { return values.same(other.values) && scales.same(other.scales); }
};

}  // namespace testing
