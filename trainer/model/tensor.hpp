// SPDX-License-Identifier: BSD-3-Clause
//
// The room of the model: what a GPT is made of and how its forward and backward passes are computed on one
// rank's share of it. Nothing here communicates but through TensorParallel (tensor_parallel.hpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace trainer {

using Index = std::int64_t;

/// Something a person asked for cannot be done; what() says what was asked, what was found and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How numbers are kept in memory; arithmetic is in float, sums of products in float.
enum class Type : std::uint8_t { Float32, Bfloat16, Float16 };

constexpr Index size_of(Type type) { return type == Type::Float32 ? 4 : 2; }
std::string name_of(Type type);
/// "fp32", "bf16" or "fp16"; throws Error otherwise.
Type type_from(const std::string& name);

/// `first` elements into an array of `type`.
inline void* advance(void* data, Type type, Index first) {
  return static_cast<std::byte*>(data) + first * size_of(type);
}
inline const void* advance(const void* data, Type type, Index first) {
  return static_cast<const std::byte*>(data) + first * size_of(type);
}

}  // namespace trainer
