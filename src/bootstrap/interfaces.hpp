// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <vector>

#include "bootstrap/address.hpp"

namespace tutti {

/// A network interface of this host that is up, with one of its addresses.
struct Interface {
  std::string name;
  Address address;      ///< port 0
  int prefix_bits = 0;  ///< of the network behind it
  int megabits = 0;     ///< per second, as its driver says; 0 where it does not
};

/// The interfaces to be used, by NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY: all that are named; without a
/// name the fastest that are neither the loopback nor bridges of container engines, or these if there is
/// nothing else. One address each: IPv4 unless the family says otherwise, and link-local ones only where
/// there is no other. Throws ncclInvalidUsage with the list of what there is when none fits.
std::vector<Interface> chosen_interfaces();

/// Whether a peer's address is in a network of ours: reached without routers.
bool is_direct(const Address& address, const std::vector<Interface>& ours);

/// The addresses of a peer in the order in which to try them: those in a network of ours first.
std::vector<Address> nearest_first(std::vector<Address> addresses, const std::vector<Interface>& ours);

/// How many of a peer's addresses are each in a network of ours, every network counted once: the number of
/// separate ways to it, or 1 if it is reached through routers.
int direct_ways(const std::vector<Address>& addresses, const std::vector<Interface>& ours);

}  // namespace tutti
