// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace trainer {

/// The first SIGINT or SIGTERM from now on asks training to end after the step, with a checkpoint; another
/// one more than a second later ends the process at once.
void stop_on_signals();
/// SIGINT or SIGTERM when one has asked, else 0.
int stop_signal();

}  // namespace trainer
