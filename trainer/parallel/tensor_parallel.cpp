// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/tensor_parallel.hpp"

namespace trainer {

const Array& TensorParallel::enter(const Array& part, Array& whole) {
  if (!sequence_parallel_) return part;
  whole = Array(memory_, Use::Activations, part.type(), part.count() * group_.size());
  group_.all_gather(part.type(), part.data(), whole.data(), part.count());
  return whole;
}

Array TensorParallel::leave(Array partial) {
  if (!sequence_parallel_) {
    group_.all_reduce(partial.type(), partial.data(), partial.count());
    return partial;
  }
  Array part(memory_, Use::Activations, partial.type(), partial.count() / group_.size());
  group_.reduce_scatter(partial.type(), partial.data(), part.data(), part.count());
  return part;
}

void TensorParallel::maximum(std::span<float> values) {
  group_.maximum(values.data(), static_cast<Index>(values.size()));
}

void TensorParallel::sum(std::span<float> values) {
  group_.all_reduce(Type::Float32, values.data(), static_cast<Index>(values.size()));
}

}  // namespace trainer
