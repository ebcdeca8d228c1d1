// SPDX-License-Identifier: BSD-3-Clause
//
// Lanes over TCP: the tcp transport, between ranks that share no memory. A pair of ranks has a connection for
// each lane that it uses, made when a plan first needs it: the higher rank connects to one of the
// process-wide listeners of the lower one, and both prove that they know the communicator's secret before the
// socket changes hands.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "bootstrap/control.hpp"
#include "transport/tcp_link.hpp"

namespace tutti {

/// How another rank is reached.
struct TcpPeer {
  std::string name;                ///< "rank 3 (pid 12 on host)"
  std::vector<Address> addresses;  ///< of its listeners; empty: not by TCP
};

/// One rank's ends of its lanes to ranks of other hosts.
class TcpLanes {
 public:
  struct Options {
    std::vector<TcpPeer> peers;  ///< by rank
    int lanes = 1;
    std::size_t slice = 65536;             ///< most bytes of a message
    int sockets_per_way = 1;               ///< of a link, on each network that joins the two hosts
    std::chrono::milliseconds silence{0};  ///< until a peer that answers nothing is given up; 0: never
    std::function<void()> ring;            ///< wakes the rank; called on the service thread
  };
  /// Blocks until other ranks can connect.
  TcpLanes(const std::shared_ptr<Control>& control, Options options);
  ~TcpLanes();
  TcpLanes(const TcpLanes&) = delete;
  TcpLanes& operator=(const TcpLanes&) = delete;

  /// Ends that live as long as this object; the same arguments give the same end.
  Inlet& inlet(int source, int lane);
  Outlet& outlet(const std::vector<int>& destinations, int lane);

  /// Takes over what has been connected, and writes what waits; whether anything moved. Throws when a rank
  /// cannot be reached, or has been lost for so long that nobody else will say why.
  bool progress();
  /// Readable when there may be something to do for progress() or the ends.
  int poll_file() const { return epoll_.get(); }
  /// Takes the events that made it readable.
  void take_events();
  /// Whether nothing more will come from that rank.
  bool is_through(int peer) const;

 private:
  class TcpInlet;
  class TcpOutlet;
  struct Mailbox;
  TcpLink& link(int peer, int lane);
  void open_links();
  void take_link(int peer, int lane, std::vector<TcpLink::Opened> sockets);

  Options options_;
  int rank_;
  std::shared_ptr<Control> control_;
  FileDescriptor epoll_;
  std::shared_ptr<Mailbox> mailbox_;
  std::string failure_;  // to connect
  std::chrono::steady_clock::time_point failed_at_;
  std::vector<std::unique_ptr<TcpLink>> links_;  // by peer and lane
  std::vector<TcpLink*> used_;
  std::vector<std::unique_ptr<TcpInlet>> inlets_;                 // by peer and lane
  std::vector<std::vector<std::unique_ptr<TcpOutlet>>> outlets_;  // by lane
};

}  // namespace tutti
