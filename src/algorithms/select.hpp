// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/network.hpp"

namespace tutti {

/// What the closed forms of cost are made of. The values were fitted to timings on one host
/// (docs/performance.md says how), not on the one at hand: a choice that varied with a measurement could
/// change a result's last bits from run to run.
struct CostParameters {
  double hop_seconds = 0.3e-6;             ///< from a sender's last store to the receiver's first load
  double switch_seconds = 4e-6;            ///< from one rank to the next on a core that they share
  double message_seconds = 0.25e-6;        ///< what a rank spends on a message, whatever its size
  double crossed_bytes_per_second = 14e9;  ///< read by one core after another one wrote them
  double local_bytes_per_second = 40e9;    ///< read or written by the core that had them last
  double ranks_per_core = 1;               ///< on a host; if more than one, they take turns
  int ranks_per_host = 0;                  ///< on the largest host, if there are several
  bool shared_pointers = false;            ///< all ranks are threads of one process
};

/// Seconds that the algorithm takes within a host for `bytes` per rank (of the count of the C call), in
/// closed form from what a rank does one after the other: hops, messages, bytes through its core.
double predicted_seconds(Algorithm algorithm, Collective collective, int ranks, std::size_t bytes,
                         const CostParameters& parameters);

/// Which algorithms each collective may use: NCCL_ALGO in a form that is quick to ask.
class AlgorithmFilter {
 public:
  AlgorithmFilter();  ///< all allowed
  /// Parses NCCL_ALGO (see settings). Names of algorithms that only NCCL has are passed over; anything else
  /// that is unknown throws ncclInvalidArgument with the list of those there are.
  static AlgorithmFilter parse(const std::string& text);
  bool allows(Collective collective, Algorithm algorithm) const;

 private:
  void apply(const std::string& list, std::uint32_t collectives);
  std::array<std::uint32_t, kCollectiveCount> allowed_;
};

/// The cheapest allowed algorithm; all of them if none of the allowed ones exists for the collective.
/// `network`: of ranks on several hosts, else null.
Algorithm select(Collective collective, int ranks, std::size_t bytes, const AlgorithmFilter& filter,
                 const CostParameters& parameters, NetworkModel* network = nullptr);

}  // namespace tutti
