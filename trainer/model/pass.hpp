// SPDX-License-Identifier: BSD-3-Clause
//
// What the layers have in common: where they compute, for which samples, and with whom.
#pragma once
#include <span>

#include "model/kernels.hpp"
#include "model/layout.hpp"
#include "model/memory.hpp"
#include "model/products.hpp"

namespace trainer {

/// The ranks that share every layer. This base is one rank alone; parallel/tensor_parallel.hpp has the other.
/// A layer's inputs are `entered` before its column-parallel product and its outputs `leave` after the
/// row-parallel one; the backward pass does the same with the gradients of outputs and inputs (the operators
/// f and g, and their sequence-parallel forms, of Shoeybi et al. 2019 and Korthikanti et al. 2022).
class TensorGroup {
 public:
  TensorGroup() = default;
  virtual ~TensorGroup() = default;
  TensorGroup(const TensorGroup&) = delete;
  TensorGroup& operator=(const TensorGroup&) = delete;

  virtual TensorShard shard() const { return {}; }
  /// Between layers each rank holds a part of the tokens only (sequence parallelism).
  virtual bool splits_tokens() const { return false; }
  /// All tokens: `part` itself, or gathered into `whole`. Blocks.
  virtual const Array& enter(const Array& part, Array& whole) {
    (void)whole;
    return part;
  }
  /// The sum over the ranks: all tokens of it, or this rank's part of them. Blocks.
  virtual Array leave(Array partial) { return partial; }
  /// In place, over the ranks. Block.
  virtual void maximum(std::span<float>) {}
  virtual void sum(std::span<float>) {}
};

/// One micro-batch's way through the model on one rank.
struct Pass {
  const ModelShape& shape;
  Memory& memory;
  Products& products;
  TensorGroup& tensor;
  Index samples;           ///< of the micro-batch
  Index first_sample = 0;  ///< number of its first sample in the step's global batch
  bool training = true;    ///< false: no dropout, nothing is kept for a backward pass
  bool recompute = false;  ///< blocks keep their input alone and run forward again in the backward pass
  std::uint64_t seed = 0;  ///< of dropout
  Index step = 0;

  Type type() const { return products.type(); }
  Index tokens() const { return samples * shape.context; }
  /// Tokens that this rank holds between layers.
  Index own_tokens() const { return tensor.splits_tokens() ? tokens() / tensor.shard().size : tokens(); }
  Array activation(Index count) const { return {memory, Use::Activations, type(), count}; }
  Array floats(Index count) const { return {memory, Use::Activations, Type::Float32, count}; }
};

/// A unit's gradients, laid out like its parameters.
struct UnitGradient {
  void* data;
  bool accumulate;  ///< add to what is there; else overwrite it
};

/// Dropout of activations [own tokens x width], added to `residual` where there is one; `layer` and `site`
/// number the place in the model. The same elements are dropped in every layout.
void dropout(const Pass& pass, Index layer, Index site, const Array& x, const Array* residual, Array& y);

/// y = x w^T + bias [rows x out], x: [rows x in], w: [out x in]; bias may be null.
void linear(Products& products, const void* x, const void* weight, const void* bias, void* y, Index rows,
            Index in, Index out, bool gelu = false);
/// dx = dy w.
void linear_input_gradient(Products& products, const void* dy, const void* weight, void* dx, Index rows,
                           Index in, Index out);
/// dw = dy^T x, or += where accumulate.
void linear_weight_gradient(Products& products, const void* dy, const void* x, void* d_weight,
                            bool accumulate, Index rows, Index in, Index out);
/// d_bias = column sums of dy, or += where accumulate.
void bias_gradient(const Pass& pass, const void* dy, void* d_bias, bool accumulate, Index rows,
                   Index columns);

/// LayerNorm with what its backward pass needs.
struct NormState {
  Array output, mean, rstd;
};
NormState normalize(const Pass& pass, const Array& x, const void* weight, const void* bias);
/// residual += gradient through the norm; writes the gradients of weight and bias.
void normalize_backward(const Pass& pass, const Array& dy, const Array& x, const NormState& state,
                        const void* weight, Array& residual, void* d_weight, void* d_bias, bool accumulate);

}  // namespace trainer
