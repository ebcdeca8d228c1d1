// SPDX-License-Identifier: BSD-3-Clause
//
// Congestion control of TCP sockets, as TUTTI_TCP_CONGESTION asks. Sockets get it before they connect or
// listen (accepted ones inherit it): where BBR has once begun, the kernel paces the socket ever after,
// whatever control it is given later.
#pragma once
#include "bootstrap/address.hpp"

namespace tutti {

/// Throws ncclInvalidUsage if the kernel refuses the control that the setting names.
void check_congestion_setting();

/// Of a socket that is going to be connected.
void choose_congestion_control(int socket, const Address& peer);
/// Of a socket that is going to listen, to peers not known yet.
void choose_congestion_control(int listener);
/// Of an accepted socket: as it would have been if its peer had been known.
void review_congestion_control(int socket);

}  // namespace tutti
