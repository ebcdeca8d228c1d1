// SPDX-License-Identifier: BSD-3-Clause
#include "model/shape.hpp"

#include <fmt/format.h>

#include <cmath>

namespace trainer {

ModelShape preset(const std::string& name) {
  if (name == "tiny") return {.layers = 8, .width = 96, .heads = 4, .context = 128};
  if (name == "small") return {.layers = 6, .width = 384, .heads = 6, .context = 256};
  if (name == "medium") return {.layers = 8, .width = 512, .heads = 8, .context = 512};
  throw Error(fmt::format("there is no preset \"{}\": choose tiny, small or medium", name));
}

std::vector<UnitSpec> model_units(const ModelShape& shape) {
  const Index c = shape.width, f = shape.hidden();
  // GPT-2's start: what adds to the residual stream is smaller, so that its variance does not grow with
  // depth.
  const float usual = 0.02F;
  const float residual = usual / std::sqrt(2.0F * static_cast<float>(shape.layers));
  auto matrix = [](std::string name, Index rows, Index columns, Split split, float deviation,
                   Index groups = 1) {
    return ParameterSpec{.name = std::move(name),
                         .rows = rows,
                         .columns = columns,
                         .split = split,
                         .groups = groups,
                         .start = Start::Normal,
                         .deviation = deviation,
                         .decays = true};
  };
  auto bias = [](std::string name, Index count, Split split, Index groups = 1) {
    // A bias of a column-parallel layer is cut like the rows of its weight: as a column of numbers.
    return split == Split::None ? ParameterSpec{.name = std::move(name), .rows = 1, .columns = count}
                                : ParameterSpec{.name = std::move(name),
                                                .rows = count,
                                                .columns = 1,
                                                .split = Split::Rows,
                                                .groups = groups};
  };
  auto norm = [c](const std::string& name, Start start) {
    return ParameterSpec{.name = name, .rows = 1, .columns = c, .start = start, .is_norm = true};
  };

  std::vector<UnitSpec> units;
  units.push_back({"embedding",
                   {matrix("embedding.tokens", shape.vocabulary, c, Split::Rows, usual),
                    matrix("embedding.positions", shape.context, c, Split::None, usual)}});
  for (Index layer = 0; layer < shape.layers; ++layer) {
    auto name = [layer](const char* part) { return fmt::format("block{}.{}", layer, part); };
    units.push_back(
        {fmt::format("block {}", layer),
         {norm(name("norm1.weight"), Start::Ones), norm(name("norm1.bias"), Start::Zeros),
          matrix(name("qkv.weight"), 3 * c, c, Split::Rows, usual, 3),
          bias(name("qkv.bias"), 3 * c, Split::Rows, 3),
          matrix(name("projection.weight"), c, c, Split::Columns, residual),
          bias(name("projection.bias"), c, Split::None), norm(name("norm2.weight"), Start::Ones),
          norm(name("norm2.bias"), Start::Zeros), matrix(name("up.weight"), f, c, Split::Rows, usual),
          bias(name("up.bias"), f, Split::Rows), matrix(name("down.weight"), c, f, Split::Columns, residual),
          bias(name("down.bias"), c, Split::None)}});
  }
  UnitSpec last{"head", {norm("head.norm.weight", Start::Ones), norm("head.norm.bias", Start::Zeros)}};
  if (!shape.tied) last.parameters.push_back(matrix("head.weight", shape.vocabulary, c, Split::Rows, usual));
  units.push_back(std::move(last));

  Index first = 0;
  for (UnitSpec& unit : units)
    for (ParameterSpec& parameter : unit.parameters) {
      parameter.first = first;
      first += parameter.count();
    }
  return units;
}

Index parameter_count(const std::vector<UnitSpec>& units) {
  const ParameterSpec& last = units.back().parameters.back();
  return last.first + last.count();
}

}  // namespace trainer
