// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <tutti/communicator.hpp>

#include "data/corpus.hpp"
#include "options.hpp"

namespace trainer {

/// Trains as one rank of `world`, and tells of it on rank 0. Collective. Returns the process' exit code: 0,
/// or 128 + the signal that it was stopped by. Throws Error or tutti::Exception.
int train(const Options& options, const Corpus& corpus, tutti::Communicator world);
/// All ranks as threads of this process.
int train_in_threads(const Options& options, const Corpus& corpus);

}  // namespace trainer
