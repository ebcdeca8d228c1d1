// SPDX-License-Identifier: BSD-3-Clause
#include "reduce/types.hpp"

#include <algorithm>
#include <array>

namespace tutti {
namespace {
constexpr std::array<std::string_view, kDataTypeCount> kTypeNames = {
    "int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
    "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
constexpr std::array<std::string_view, kOperatorKindCount> kOperatorNames = {"sum", "prod", "max",
                                                                             "min", "avg",  "mulsum"};

template <class Enum, std::size_t N>
std::optional<Enum> find_name(const std::array<std::string_view, N>& names, std::string_view name) {
  auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) return std::nullopt;
  return static_cast<Enum>(at - names.begin());
}
}  // namespace

std::string_view name_of(DataType type) { return kTypeNames[static_cast<std::size_t>(type)]; }
std::optional<DataType> data_type_named(std::string_view name) {
  return find_name<DataType>(kTypeNames, name);
}
std::string_view name_of(OperatorKind kind) { return kOperatorNames[static_cast<std::size_t>(kind)]; }
std::optional<OperatorKind> operator_named(std::string_view name) {
  return find_name<OperatorKind>(kOperatorNames, name);
}

}  // namespace tutti
