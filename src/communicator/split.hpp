// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "communicator/communicator.hpp"

namespace tutti {

/// Makes an id whose rendezvous this process serves.
UniqueId make_unique_id();

/// An id that every process derives alike from an address "host:port" and a shared secret text; rank 0's
/// process serves it.
UniqueId unique_id_at(const std::string& address, const std::string& secret);

/// Collective over `parent`: ranks of one colour form a communicator, ordered by (key, rank). Null for
/// NCCL_SPLIT_NOCOLOR. `options` gives all but ids, ranks and rank. Blocks for all ranks of the parent.
std::shared_ptr<Communicator> split(Communicator& parent, int color, int key, CommunicatorOptions options);

}  // namespace tutti
