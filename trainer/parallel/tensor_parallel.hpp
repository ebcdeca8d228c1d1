// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "model/pass.hpp"
#include "parallel/rank_group.hpp"

namespace trainer {

/// Layers shared by the ranks of a group. An all-reduce where sums leave a layer; with `sequence_parallel` a
/// reduce-scatter there and an all-gather where tokens enter: the same bytes, and between layers only a part
/// of the tokens on each rank.
class TensorParallel : public TensorGroup {
 public:
  /// Both must outlive it; gathers and scatters take their arrays from `memory`.
  TensorParallel(RankGroup& group, Memory& memory, bool sequence_parallel)
      : group_(group), memory_(memory), sequence_parallel_(sequence_parallel && group.size() > 1) {}

  TensorShard shard() const override { return {group_.rank(), group_.size()}; }
  bool splits_tokens() const override { return sequence_parallel_; }
  const Array& enter(const Array& part, Array& whole) override;
  Array leave(Array partial) override;
  void maximum(std::span<float> values) override;
  void sum(std::span<float> values) override;

 private:
  RankGroup& group_;
  Memory& memory_;
  bool sequence_parallel_;
};

}  // namespace trainer
