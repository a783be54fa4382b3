// Areas of one buffer, one behind the other, each 64-byte aligned. Over a null buffer it only counts.
#pragma once
#include "core/sizes.h"

namespace sf {

class Carve {
 public:
  explicit Carve(void* buffer) : buffer_(static_cast<uint8_t*>(buffer)) {}

  template <class T>
  T* take(int64_t count) {
    uint8_t* area = buffer_ ? buffer_ + bytes_ : nullptr;
    bytes_ += align64(count * int64_t(sizeof(T)));
    return reinterpret_cast<T*>(area);
  }
  int64_t bytes() const { return bytes_; }

 private:
  uint8_t* buffer_;
  int64_t bytes_ = 0;
};

}  // namespace sf
