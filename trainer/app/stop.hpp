// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "parallel/rank_group.hpp"

namespace trainer {

/// The first SIGINT or SIGTERM from now on asks training to end after the step, with a checkpoint; another
/// one more than a second later ends the process at once.
void stop_on_signals();
/// Whether this process was asked.
bool stops();
/// Whether any rank's was. Collective.
bool any_rank_stops(RankGroup& ranks);
/// The signal that asked this process; SIGINT where it was another rank's.
int stop_signal();
/// What a process that was stopped exits with: 128 + the signal.
inline int stop_code() { return 128 + stop_signal(); }

}  // namespace trainer
