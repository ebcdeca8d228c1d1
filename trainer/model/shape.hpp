// SPDX-License-Identifier: BSD-3-Clause
//
// What the whole model looks like, before anybody holds a part of it.
#pragma once
#include <string>
#include <vector>

#include "model/tensor.hpp"

namespace trainer {

/// Sizes of a decoder-only GPT with pre-LayerNorm blocks and an MLP of four times the width.
struct ModelShape {
  Index layers = 8;
  Index width = 96;
  Index heads = 4;
  Index context = 128;  ///< tokens of a sample
  Index vocabulary = 256;
  bool tied = true;  ///< the head uses the token embedding as its weight
  float dropout = 0;

  Index hidden() const { return 4 * width; }
  Index head_width() const { return width / heads; }
  bool operator==(const ModelShape&) const = default;
};

/// "tiny" (0.9 M parameters), "small" (11 M) or "medium" (25 M), with byte tokens; throws Error otherwise.
ModelShape preset(const std::string& name);

/// How tensor parallelism cuts a parameter.
enum class Split : std::uint8_t { None, Rows, Columns };
enum class Start : std::uint8_t { Zeros, Ones, Normal };

/// One parameter of the whole model: a matrix of rows x columns, row by row (a vector has one row).
struct ParameterSpec {
  std::string name;
  Index rows, columns;
  Split split = Split::None;
  Index groups = 1;  ///< a split of rows is made within each of so many equal groups (query, key, value)
  Start start = Start::Zeros;
  float deviation = 0;  ///< of Start::Normal
  bool decays = false;  ///< takes part in weight decay: matrices, not biases and norms
  bool is_norm =
      false;        ///< of a LayerNorm: under sequence parallelism each rank sees a part of the tokens only
  Index first = 0;  ///< number of its first element among all of the model's
  Index count() const { return rows * columns; }
};

/// Parameters that are used together: the embeddings, one block, or the head.
struct UnitSpec {
  std::string name;
  std::vector<ParameterSpec> parameters;
};

/// Places of parameters within their units.
namespace embedding {
enum : std::size_t { Tokens, Positions };
}
namespace block {
enum : std::size_t {
  Norm1Weight,
  Norm1Bias,
  QkvWeight,
  QkvBias,
  ProjectionWeight,
  ProjectionBias,
  Norm2Weight,
  Norm2Bias,
  UpWeight,
  UpBias,
  DownWeight,
  DownBias
};
}
namespace head {
enum : std::size_t { NormWeight, NormBias, Weight };  // Weight only where untied
}

/// Unit 0 is the embeddings, 1 to layers are blocks, the last is the head.
std::vector<UnitSpec> model_units(const ModelShape& shape);
Index parameter_count(const std::vector<UnitSpec>& units);

}  // namespace trainer
