// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>

#include "parallel/rank_group.hpp"

namespace trainer {

/// The kept spans of every rank in the Chrome trace event format ("X" events, times in microseconds; opens in
/// Perfetto and chrome://tracing): a process for each rank, named `label`. Collective over `job`; its rank 0
/// gets the text, the others none.
std::string trace_of(RankGroup& job, const Timeline& timeline, const std::string& label);

}  // namespace trainer
