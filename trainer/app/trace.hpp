// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>

#include "measure/timeline.hpp"
#include "parallel/rank_group.hpp"

namespace trainer {

/// Writes the kept spans of every rank into one file, in the Chrome trace event format ("X" events, times in
/// microseconds; opens in Perfetto and chrome://tracing): a process for each rank, named `label`. Collective
/// over `job`; its rank 0 writes. Throws Error there when the file cannot be written.
void write_trace(const std::string& path, RankGroup& job, const Timeline& timeline, const std::string& label);

}  // namespace trainer
