// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <map>
#include <tuple>

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
