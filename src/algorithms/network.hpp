// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <map>
#include <tuple>

#include "algorithms/schedule.hpp"

namespace tutti {

/// What the network between hosts costs. The defaults are for TCP from machine to machine; the rate of the
/// wire is what the interfaces say. docs/performance.md says what was measured.
struct NetworkParameters {
  double hop_seconds = 12e-6;             ///< on the way, beside what sender and receiver spend
  double message_seconds = 2.2e-6;        ///< what a rank spends on sending or receiving one
  double rank_bytes_per_second = 3.5e9;   ///< through one rank's system calls
  double host_bytes_per_second = 1.25e9;  ///< through a host's interfaces, each way
  double ranks_per_core = 1;              ///< on a machine; if more than one, they take turns
  /// Between hosts on one machine: no wire, and what is sent is received by the same call.
  static NetworkParameters virtual_links();
};

/// What an algorithm asks of the network between hosts.
struct NetworkWork {
  struct Rank {
    double messages = 0;  ///< sent and received
    double bytes = 0;     ///< the same; in multiples of the call's bytes per rank
  };
  double hops = 0;  ///< one after the other
  Rank busiest, average;
  double host_bytes = 0;  ///< through the busiest host's interfaces, in the busier direction; multiples, too
};

/// Counted from the schedules of all ranks (root 0), so that it is what they do. `blocks_per_message`: how
/// many ranks' bytes of the call a message can hold; some algorithms put several in one.
NetworkWork count_network_work(Algorithm algorithm, Collective collective, const HostMap& hosts,
                               std::size_t blocks_per_message);

/// The part of an algorithm's time that its messages between hosts take. Counts an algorithm once for every
/// number of blocks that fit in a message, in powers of two.
class NetworkModel {
 public:
  /// `slice`: most bytes of a message.
  NetworkModel(HostMap hosts, const NetworkParameters& parameters, std::size_t slice)
      : hosts_(std::move(hosts)), parameters_(parameters), slice_(slice) {}
  const HostMap& hosts() const { return hosts_; }
  double seconds(Algorithm algorithm, Collective collective, std::size_t bytes);

 private:
  std::size_t blocks_per_message(std::size_t bytes) const;

  HostMap hosts_;
  NetworkParameters parameters_;
  std::size_t slice_;
  std::map<std::tuple<Algorithm, Collective, std::size_t>, NetworkWork> counted_;
};

}  // namespace tutti
