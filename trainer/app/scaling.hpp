// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <tutti/communicator.hpp>
#include <vector>

#include "data/corpus.hpp"
#include "options.hpp"

namespace trainer {

struct ScalingOptions {
  std::vector<int> ranks = {1, 2, 4};
  std::string along = "dp";  ///< the axis that the ranks go to: dp, tp or pp
  int rounds = 3;  ///< through all counts of ranks, so that a slow moment does not fall on one alone

  int most() const;
};

/// Throws Error for what cannot be measured.
void check(const ScalingOptions& scaling, const Options& options, int ranks);

/// Trains options.steps steps of the same work on the first 1, 2, ... ranks of `world`, which has
/// scaling.most() ranks, and tells on rank 0 how the time falls. Collective. Returns the exit code. Throws
/// Error or tutti::Exception.
int measure_scaling(const ScalingOptions& scaling, const Options& options, const Corpus& corpus,
                    tutti::Communicator world);

}  // namespace trainer
