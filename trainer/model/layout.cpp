// SPDX-License-Identifier: BSD-3-Clause
#include "model/layout.hpp"

#include <algorithm>

#include "model/random.hpp"

namespace trainer {

UnitLayout::UnitLayout(const UnitSpec& spec, TensorShard shard) : spec_(&spec), shard_(shard) {
  for (const ParameterSpec& parameter : spec.parameters) {
    Index rows = parameter.split == Split::Rows ? parameter.rows / shard.size : parameter.rows;
    Index columns = parameter.split == Split::Columns ? parameter.columns / shard.size : parameter.columns;
    parameters_.push_back({&parameter, rows, columns, count_});
    count_ += rows * columns;
  }
}

void UnitLayout::for_each_run(const LocalParameter& local,
                              const std::function<void(Index, Index, Index)>& f) const {
  const ParameterSpec& whole = *local.spec;
  switch (whole.split) {
    case Split::None:
      f(local.offset, whole.first, whole.count());
      return;
    case Split::Rows: {
      Index rows = local.rows / whole.groups;
      for (Index group = 0; group < whole.groups; ++group) {
        Index row = group * (whole.rows / whole.groups) + shard_.rank * rows;
        f(local.offset + group * rows * local.columns, whole.first + row * whole.columns,
          rows * whole.columns);
      }
      return;
    }
    case Split::Columns:
      for (Index row = 0; row < local.rows; ++row)
        f(local.offset + row * local.columns, whole.first + row * whole.columns + shard_.rank * local.columns,
          local.columns);
      return;
  }
}

void UnitLayout::start_values(std::uint64_t seed, float* values) const {
  for (const LocalParameter& local : parameters_) {
    const ParameterSpec& spec = *local.spec;
    for_each_run(local, [&](Index place, Index number, Index length) {
      if (spec.start != Start::Normal) {
        std::fill_n(values + place, length, spec.start == Start::Ones ? 1.0F : 0.0F);
        return;
      }
      for (Index i = 0; i < length; ++i)
        values[place + i] = spec.deviation * normal(seed, 0, static_cast<std::uint64_t>(number + i));
    });
  }
}

std::vector<UnitLayout> layouts_of(const std::vector<UnitSpec>& units, TensorShard shard) {
  std::vector<UnitLayout> layouts;
  for (const UnitSpec& unit : units) layouts.emplace_back(unit, shard);
  return layouts;
}

}  // namespace trainer
