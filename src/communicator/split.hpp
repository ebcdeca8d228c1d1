// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "communicator/communicator.hpp"

namespace tutti {

/// Collective over `parent`: ranks of one colour form a communicator, ordered by (key, rank). Null for
/// NCCL_SPLIT_NOCOLOR. `options` gives all but ids, ranks and rank. Blocks for all ranks of the parent.
std::shared_ptr<Communicator> split(Communicator& parent, int color, int key, CommunicatorOptions options);

}  // namespace tutti
