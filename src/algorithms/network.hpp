// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <map>
#include <utility>

#include "algorithms/schedule.hpp"

namespace tutti {

/// What the network between hosts costs. Values for TCP on one host's virtual links (docs/performance.md);
/// the rate of the wire is what the interfaces say.
struct NetworkParameters {
  double hop_seconds = 12e-6;             ///< from a sender's call to the receiver's having the bytes
  double message_seconds = 2.5e-6;        ///< what a rank spends on sending or receiving one
  double rank_bytes_per_second = 3.5e9;   ///< through one rank's system calls
  double host_bytes_per_second = 1.25e9;  ///< through a host's interfaces, each way
};

/// What an algorithm asks of the network between hosts.
struct NetworkWork {
  double hops = 0;        ///< one after the other
  double messages = 0;    ///< sent and received by the busiest rank
  double rank_bytes = 0;  ///< the same in bytes; in multiples of the call's bytes per rank
  double host_bytes = 0;  ///< through the busiest host's interfaces, in the busier direction
};

/// Counted from the schedules of all ranks (root 0), so that it is what they do.
NetworkWork count_network_work(Algorithm algorithm, Collective collective, const HostMap& hosts);

/// The part of an algorithm's time that its messages between hosts take. Counts each algorithm once.
class NetworkModel {
 public:
  NetworkModel(HostMap hosts, const NetworkParameters& parameters)
      : hosts_(std::move(hosts)), parameters_(parameters) {}
  const HostMap& hosts() const { return hosts_; }
  double seconds(Algorithm algorithm, Collective collective, std::size_t bytes);

 private:
  HostMap hosts_;
  NetworkParameters parameters_;
  std::map<std::pair<Algorithm, Collective>, NetworkWork> counted_;
};

}  // namespace tutti
