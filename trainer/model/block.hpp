// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "model/pass.hpp"

namespace trainer {

/// What a block's forward pass leaves for its backward pass. With recomputation the input alone.
struct BlockState {
  Array input;
  NormState norm1;
  Array qkv, probabilities, mixed;
  Array middle;  ///< after the attention's residual addition
  NormState norm2;
  Array up;  ///< of the MLP, before GELU
};

/// A transformer block: x + attention(norm(x)), then x + mlp(norm(x)).
class Block {
 public:
  /// `layout` must outlive the block; `layer` counts from 0.
  Block(const UnitLayout& layout, Index layer) : layout_(&layout), layer_(layer) {}

  /// Activations in and out are [own tokens x width]. `weights`: the unit's parameters.
  Array forward(const Pass& pass, const void* weights, Array input, BlockState& state) const;
  /// Returns the gradient of the input; empties `state`.
  Array backward(const Pass& pass, const void* weights, UnitGradient gradient, BlockState& state,
                 Array d_output) const;

 private:
  const void* at(const void* weights, const Pass& pass, std::size_t place) const {
    return advance(weights, pass.type(), (*layout_)[place].offset);
  }
  void* at(void* gradients, const Pass& pass, std::size_t place) const {
    return advance(gradients, pass.type(), (*layout_)[place].offset);
  }
  void attention_forward(const Pass& pass, const void* weights, BlockState& state) const;
  void mlp_up(const Pass& pass, const void* weights, BlockState& state) const;
  /// The gradient of what a residual addition added: that of the sum, or what dropout leaves of it, in
  /// `dropped`.
  const Array& branch_gradient(const Pass& pass, Index site, const Array& d_sum, Array& dropped) const;
  Array mlp_backward(const Pass& pass, const void* weights, UnitGradient gradient, BlockState& state,
                     Array d_output) const;
  Array attention_backward(const Pass& pass, const void* weights, UnitGradient gradient, BlockState& state,
                           Array d_middle) const;

  const UnitLayout* layout_;
  Index layer_;
};

}  // namespace trainer
