// SPDX-License-Identifier: BSD-3-Clause
//
// src/reduce: element types, operators, and the SIMD kernels that combine n operands in one pass. It knows
// memory and nothing of ranks, schedules or transports.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

/// Element types; the values are those of ncclDataType_t.
enum class DataType : std::uint8_t {
  int8,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64,
  bfloat16,
  float8e4m3,
  float8e5m2,
};
inline constexpr int kDataTypeCount = 12;

/// Bytes of one element.
constexpr std::size_t size_of(DataType type) {
  constexpr std::uint8_t kSizes[kDataTypeCount] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kSizes[static_cast<int>(type)];
}

/// As nccl-tests calls it: "int8", "half", "float", "bfloat16", "f8e4m3" ...
std::string_view name_of(DataType type);
std::optional<DataType> data_type_named(std::string_view name);

/// Operators; the first five values are those of ncclRedOp_t.
enum class OperatorKind : std::uint8_t { sum, prod, max, min, avg, premul_sum };
inline constexpr int kOperatorKindCount = 6;

/// "sum", "prod", "max", "min", "avg", "mulsum".
std::string_view name_of(OperatorKind kind);
std::optional<OperatorKind> operator_named(std::string_view name);

/// An operator as a call uses it. For premul_sum, `scalar` holds the factor in the call's element type (the
/// first size_of(type) bytes).
struct Operator {
  OperatorKind kind = OperatorKind::sum;
  std::uint64_t scalar = 0;
};

}  // namespace tutti
