// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <memory>

#include "model/tensor.hpp"

namespace trainer {

/// How a matrix lies in memory, in elements; the two outer strides are of batches (images and heads, say).
struct Strides {
  Index row, column;
  Index outer = 0, inner = 0;
  bool operator==(const Strides&) const = default;
};
/// Row-major with rows of `width`, and its transpose.
constexpr Strides by_rows(Index width) { return {width, 1}; }
constexpr Strides by_columns(Index height) { return {1, height}; }

/// c = a b, for outer x inner matrices at once: a is m x k, b is k x n, c is m x n.
struct Product {
  Index m, n, k;
  Strides a, b, c;
  Index outer = 1, inner = 1;
  bool accumulate = false;  ///< add to what c holds
  bool gelu = false;        ///< c = gelu(a b + bias), the tanh form
  bool operator==(const Product&) const = default;
};

/// Products of matrices by oneDNN, which keeps a compiled kernel for each form of product that came by. One
/// thread each. fp16 has no kernels in oneDNN's CPU engine: it is computed in float, by way of copies.
class Products {
 public:
  explicit Products(Type type);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  Type type() const { return type_; }
  /// All of the engine's type; `bias` has n elements or is null. c overlaps nothing else.
  void multiply(const Product& product, const void* a, const void* b, void* c, const void* bias = nullptr);

 private:
  struct Engine;
  void by_float(const Product& product, const void* a, const void* b, void* c, const void* bias);

  Type type_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace trainer
