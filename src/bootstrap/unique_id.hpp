// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "bootstrap/address.hpp"
#include "bootstrap/secret.hpp"

namespace tutti {

/// The contents of an ncclUniqueId: where the rendezvous is, and the secret of those who may join.
struct UniqueId {
  std::vector<Address> rendezvous;  ///< of one process, to be tried in turn
  Secret secret;
  bool rank_0_serves = false;  ///< the address was agreed on: the process of rank 0 opens the rendezvous

  /// Of many addresses, those are left out for which there is no room.
  ncclUniqueId pack() const;
  /// Throws ncclInvalidArgument when `id` was not made by pack().
  static UniqueId unpack(const ncclUniqueId& id);
};

}  // namespace tutti
