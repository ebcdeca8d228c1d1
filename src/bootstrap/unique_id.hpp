// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "bootstrap/address.hpp"
#include "bootstrap/secret.hpp"

namespace tutti {

/// The contents of an ncclUniqueId: where the rendezvous is, and the secret of those who may join.
struct UniqueId {
  std::vector<Address> rendezvous;  ///< of one process
  Secret secret;
  /// 0: the process that made the id serves the rendezvous. Otherwise it was agreed on: rank 0's process
  /// serves it at the first of so many ports, from those in `rendezvous` on, that is free.
  int agreed_ports = 0;

  /// Where the rendezvous may be, in the order in which to try.
  std::vector<Address> places() const;

  /// Of many addresses, those are left out for which there is no room.
  ncclUniqueId pack() const;
  /// Throws ncclInvalidArgument when `id` was not made by pack().
  static UniqueId unpack(const ncclUniqueId& id);
};

/// Makes an id whose rendezvous this process serves (or NCCL_COMM_ID's).
UniqueId make_unique_id();

/// An id that every process derives alike from an address "host:port" and a shared secret text; rank 0's
/// process serves it. Throws ncclInvalidArgument when there is no such host.
UniqueId unique_id_at(const std::string& address, const std::string& secret, int ports = 1);

}  // namespace tutti
