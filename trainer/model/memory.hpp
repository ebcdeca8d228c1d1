// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "model/tensor.hpp"

namespace trainer {

/// What memory is used for; the first three are the "model states" of the ZeRO paper (Rajbhandari et al.
/// 2020).
enum class Use : std::uint8_t { Parameters, Gradients, OptimizerStates, Activations, Workspace };
inline constexpr std::size_t kUseCount = 5;
const char* name_of(Use use);

class Memory;

/// An owned array of numbers, 64-byte aligned, uninitialized. Movable; gives its memory back to the Memory
/// that it came from, which must outlive it.
class Array {
 public:
  Array() = default;
  Array(Memory& memory, Use use, Type type, Index count);
  ~Array() { release(); }
  Array(Array&& other) noexcept { *this = std::move(other); }
  Array& operator=(Array&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    std::swap(type_, other.type_);
    std::swap(use_, other.use_);
    return *this;
  }

  explicit operator bool() const { return data_ != nullptr; }
  void* data() { return data_; }
  const void* data() const { return data_; }
  float* floats() { return static_cast<float*>(data_); }
  const float* floats() const { return static_cast<const float*>(data_); }
  void* at(Index first) { return advance(data_, type_, first); }
  const void* at(Index first) const { return advance(data_, type_, first); }
  Type type() const { return type_; }
  Index count() const { return count_; }
  Index bytes() const { return count_ * size_of(type_); }
  void fill_zero();
  /// Gives the memory back now.
  void release();

 private:
  Memory* memory_ = nullptr;
  void* data_ = nullptr;
  Index count_ = 0;
  Type type_ = Type::Float32;
  Use use_ = Use::Workspace;
};

/// Counts one rank's bytes by use, now and at most, and keeps freed blocks for the next array of the same
/// size: a step takes and gives back the same sizes over and over, and fresh pages cost more than the
/// arithmetic on them. For one thread.
class Memory {
 public:
  Memory() = default;
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Index bytes(Use use) const { return now_[static_cast<std::size_t>(use)]; }
  Index peak(Use use) const { return peak_[static_cast<std::size_t>(use)]; }

 private:
  friend class Array;
  void* take(Use use, Index bytes);
  void give_back(Use use, void* data, Index bytes);

  std::array<Index, kUseCount> now_{}, peak_{};
  std::map<Index, std::vector<void*>> free_;
};

}  // namespace trainer
