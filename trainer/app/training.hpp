// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <tutti/communicator.hpp>

#include "data/corpus.hpp"
#include "options.hpp"

namespace trainer {

/// Trains as one rank of `world`, and tells of it on rank 0. Collective. Returns the process' exit code: 0,
/// or 128 + the signal that it was stopped by. Throws Error or tutti::Exception.
int train(const Options& options, const Corpus& corpus, tutti::Communicator world);
/// Runs `rank` on each of as many ranks, which are threads of this process; they return the same. Throws what
/// the first of them threw.
int in_threads(int ranks, const std::function<int(tutti::Communicator)>& rank);

}  // namespace trainer
