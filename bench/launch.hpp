// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "collectives.hpp"

namespace bench {

/// Calls the library. `op` is the operator for problem.op on this communicator.
ncclResult_t launch(const Problem& problem, const Buffers& buffers, ncclRedOp_t op, ncclComm_t comm);

}  // namespace bench
