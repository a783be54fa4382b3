// What an operation may use besides its arguments: the threads, and scratch memory that each thread keeps.
#pragma once
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "core/ops.h"
#include "core/pool.h"

namespace sf {

// Grows, never shrinks, 64-byte aligned. What it holds is lost at the next get.
class Scratch {
 public:
  Scratch() = default;
  Scratch(Scratch&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
    other.bytes_ = 0;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(data_); }

  template <class T>
  T* get(int64_t count) {
    const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    if (bytes > bytes_) {
      std::free(data_);
      bytes_ = 0;
      data_ = std::aligned_alloc(64, bytes);
      if (!data_) throw std::bad_alloc();
      bytes_ = bytes;
    }
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

struct Context {
  Context(int num_threads, std::vector<int> node_of_thread)
      : pool(num_threads, std::move(node_of_thread)), scratch(num_threads) {}
  Pool pool;
  std::vector<Scratch> scratch;   // by thread; sized by a kernel before it enters the pool, where nothing may throw
  Scratch shared;                 // written by one operation, read by all threads
  std::atomic<bool> stop{false};  // asked of a run of several operations
};

// One scratch area of count elements per thread, ready before the threads start.
template <class T>
void reserve_scratch(Context& context, int64_t count) {
  for (auto& scratch : context.scratch) scratch.get<T>(count);
}

}  // namespace sf

struct sf_context : sf::Context {
  using sf::Context::Context;
};
