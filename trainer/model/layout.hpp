// SPDX-License-Identifier: BSD-3-Clause
//
// Where a rank of a tensor-parallel group keeps its part of a unit's parameters: one flat array, parameter
// after parameter.
#pragma once
#include <functional>
#include <vector>

#include "model/shape.hpp"

namespace trainer {

struct TensorShard {
  int rank = 0, size = 1;
};

struct LocalParameter {
  const ParameterSpec* spec;
  Index rows, columns;
  Index offset;  ///< of its first element in the unit's array
  Index count() const { return rows * columns; }
};

class UnitLayout {
 public:
  /// `spec` must outlive the layout. Sizes must be divisible by shard.size.
  UnitLayout(const UnitSpec& spec, TensorShard shard);

  const UnitSpec& spec() const { return *spec_; }
  const std::vector<LocalParameter>& parameters() const { return parameters_; }
  const LocalParameter& operator[](std::size_t place) const { return parameters_[place]; }
  Index count() const { return count_; }

  /// Calls f(place in the unit's array, number in the whole model, length) for every stretch of elements of
  /// `parameter` that lie side by side in both.
  void for_each_run(const LocalParameter& parameter, const std::function<void(Index, Index, Index)>& f) const;
  /// The weights that training starts with, as floats; they depend on seed and element number alone.
  void start_values(std::uint64_t seed, float* values) const;

 private:
  const UnitSpec* spec_;
  TensorShard shard_;
  std::vector<LocalParameter> parameters_;
  Index count_ = 0;
};

/// `units` must outlive the layouts.
std::vector<UnitLayout> layouts_of(const std::vector<UnitSpec>& units, TensorShard shard);

}  // namespace trainer
