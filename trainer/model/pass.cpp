// SPDX-License-Identifier: BSD-3-Clause
#include "model/pass.hpp"

#include <algorithm>

namespace trainer {

void dropout(const Pass& pass, Index layer, Index site, const Array& x, const Array* residual, Array& y) {
  Index own = pass.own_tokens();
  Index skipped = pass.tensor.splits_tokens() ? pass.tensor.shard().rank * own : 0;
  Index first = (pass.first_sample * pass.shape.context + skipped) * pass.shape.width;
  // Stream 0 makes the start values.
  Index place = ((pass.step + 1) * (pass.shape.layers + 1) + layer) * 2 + site;
  dropout_add(pass.type(), x.data(), residual == nullptr ? nullptr : residual->data(), y.data(),
              pass.training ? pass.shape.dropout : 0.0F, pass.seed, static_cast<std::uint64_t>(place), first,
              x.count());
}

void linear(Products& products, const void* x, const void* weight, const void* bias, void* y, Index rows,
            Index in, Index out, bool gelu) {
  products.multiply(
      {.m = rows, .n = out, .k = in, .a = by_rows(in), .b = by_columns(in), .c = by_rows(out), .gelu = gelu},
      x, weight, y, bias);
}

void linear_input_gradient(Products& products, const void* dy, const void* weight, void* dx, Index rows,
                           Index in, Index out) {
  products.multiply({.m = rows, .n = in, .k = out, .a = by_rows(out), .b = by_rows(in), .c = by_rows(in)}, dy,
                    weight, dx);
}

void linear_weight_gradient(Products& products, const void* dy, const void* x, void* d_weight,
                            bool accumulate, Index rows, Index in, Index out) {
  products.multiply({.m = out,
                     .n = in,
                     .k = rows,
                     .a = by_columns(out),
                     .b = by_rows(in),
                     .c = by_rows(in),
                     .accumulate = accumulate},
                    dy, x, d_weight);
}

void bias_gradient(const Pass& pass, const void* dy, void* d_bias, bool accumulate, Index rows,
                   Index columns) {
  Array sums(pass.memory, Use::Workspace, Type::Float32, columns);
  sums.fill_zero();
  add_column_sums(pass.type(), dy, sums.floats(), rows, columns);
  store_gradient(pass.type(), sums.floats(), d_bias, accumulate, columns);
}

NormState normalize(const Pass& pass, const Array& x, const void* weight, const void* bias) {
  Index columns = pass.shape.width, rows = x.count() / columns;
  NormState state{pass.activation(x.count()), pass.floats(rows), pass.floats(rows)};
  layer_norm(pass.type(), x.data(), weight, bias, state.output.data(), state.mean.floats(),
             state.rstd.floats(), rows, columns);
  return state;
}

void normalize_backward(const Pass& pass, const Array& dy, const Array& x, const NormState& state,
                        const void* weight, Array& residual, void* d_weight, void* d_bias, bool accumulate) {
  Index columns = pass.shape.width;
  Array sums(pass.memory, Use::Workspace, Type::Float32, 2 * columns);
  sums.fill_zero();
  layer_norm_backward(pass.type(), dy.data(), x.data(), weight, state.mean.floats(), state.rstd.floats(),
                      residual.data(), residual.data(), sums.floats(), sums.floats() + columns,
                      x.count() / columns, columns);
  store_gradient(pass.type(), sums.floats(), d_weight, accumulate, columns);
  store_gradient(pass.type(), sums.floats() + columns, d_bias, accumulate, columns);
}

}  // namespace trainer
