// SPDX-License-Identifier: BSD-3-Clause
//
// Everything between the products of matrices, row by row, for the instruction set at hand. Arrays are of
// `type` unless they are said to be float; matrices are dense and row-major unless a stride is given. An
// output may be an input where the comment says so; otherwise arrays do not overlap.
#pragma once
#include "model/tensor.hpp"

namespace trainer {

void convert(Type from_type, const void* from, Type to_type, void* to, Index count);

/// y = (x - mean) / sqrt(variance + 1e-5) * weight + bias of each row; mean and rstd (1 / deviation) are
/// float[rows].
void layer_norm(Type type, const void* x, const void* weight, const void* bias, void* y, float* mean,
                float* rstd, Index rows, Index columns);
/// dx = d_residual + what dy gives through the norm; d_weight and d_bias, float[columns], are added to. dx
/// may be d_residual; d_residual may be null for none.
void layer_norm_backward(Type type, const void* dy, const void* x, const void* weight, const float* mean,
                         const float* rstd, const void* d_residual, void* dx, float* d_weight, float* d_bias,
                         Index rows, Index columns);

/// The tanh form of GELU (Hendrycks, Gimpel 2016). y may be x.
void gelu(Type type, const void* x, void* y, Index count);
/// dx = dy * gelu'(x). dx may be dy.
void gelu_backward(Type type, const void* dy, const void* x, void* dx, Index count);

/// In place, for each of `matrices` square matrices of scores: row i becomes softmax(scale * row[0..i]), then
/// zeros.
void causal_softmax(Type type, void* scores, float scale, Index matrices, Index size);
/// In place: d_probabilities becomes the gradient of the scores before scaling.
void causal_softmax_backward(Type type, const void* probabilities, void* d_probabilities, float scale,
                             Index matrices, Index size);

/// y = a + b. y may be either.
void add(Type type, const void* a, const void* b, void* y, Index count);
/// sums (float[columns]) += the sum of the rows.
void add_column_sums(Type type, const void* x, float* sums, Index rows, Index columns);
/// gradient = sums, or += where accumulate.
void store_gradient(Type type, const float* sums, void* gradient, bool accumulate, Index count);

/// y[i] = residual[i] + keep(i) * x[i] / (1 - rate), where keep depends on (key, stream, first + i) alone.
/// rate 0 is a plain addition; residual may be null for none; y may be x or residual.
void dropout_add(Type type, const void* x, const void* residual, void* y, float rate, std::uint64_t key,
                 std::uint64_t stream, Index first, Index count);

/// Largest value of each row: float[rows].
void row_maxima(Type type, const void* x, float* maxima, Index rows, Index columns);
/// sums[r] = sum over columns of exp(x - maxima[r]); float[rows].
void row_exponential_sums(Type type, const void* x, const float* maxima, float* sums, Index rows,
                          Index columns);
/// In place: logits become scale * (exp(x - maxima[r]) / sums[r] - (column == target)). A target outside of
/// 0..columns-1 belongs to another rank.
void softmax_gradient(Type type, void* logits, const float* maxima, const float* sums, const Index* targets,
                      float scale, Index rows, Index columns);

/// Sum of squares, in double.
double sum_of_squares(Type type, const void* x, Index count);

struct AdamW {
  float rate, beta1, beta2, epsilon, decay;
  float correction1, correction2;  ///< 1 - beta^step
  float gradient_scale;            ///< gradients are multiplied by it first (clipping, loss scale)
};
/// One step of AdamW (Loshchilov, Hutter 2019). weights, m and v are float[count]; gradient is of `type`.
void adamw(Type type, const AdamW& how, const void* gradient, float* weights, float* m, float* v,
           Index count);

}  // namespace trainer
