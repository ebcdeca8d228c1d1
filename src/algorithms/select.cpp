// SPDX-License-Identifier: BSD-3-Clause
#include "algorithms/select.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <sstream>

#include "base/error.hpp"

namespace tutti {
namespace {

constexpr std::uint32_t kAll = (1U << kAlgorithmCount) - 1;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool is_known_to_nccl(const std::string& name) {
  std::string folded;
  for (char c : name)
    if (c != '_' && c != ' ') folded += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char* known : {"collnet", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"})
    if (folded == known) return true;
  return false;
}

// What the busiest rank does: hops one after the other, messages it handles, and bytes it reads and writes:
// those that another core wrote last, and the others. In multiples of the call's bytes per rank.
struct Work {
  double hops = 0;
  double messages = 0;
  double crossed = 0;
  double local = 0;
};

Work direct_work(Collective collective, double n, bool shared_pointers) {
  double others = n - 1;
  switch (collective) {
    case Collective::all_reduce:
      // Parts are read where they are, and results stored where they belong.
      if (shared_pointers) return {2, 2 * others + 1, others / n, 2};
      return {2, 3 * others + 1, 2 * others / n, 3};
    case Collective::broadcast:
      return {1, 1, 1, 2};
    case Collective::reduce:
      return {1, others, others, 2};
    case Collective::all_gather:
      return {1, others + 1, others, others + 3};
    case Collective::reduce_scatter:
      return {1, 2 * others, others, 2 * others + 2};
    case Collective::gather:
      return {1, others, others, others + 2};
    case Collective::scatter:
      return {1, others, 1, 2 * others + 2};
    default:
      return {1, 2 * others, others, 3 * others + 2};
  }
}

Work ring_work(Collective collective, double n) {
  double others = n - 1;
  switch (collective) {
    case Collective::all_reduce:
      return {2 * others, 4 * others, 2 * others / n, 4 * others / n + 1};
    case Collective::broadcast:
    case Collective::reduce:
      return {others, 2, 1, 3};
    default:
      return {others, 2 * others, others, 2 * others + 2};
  }
}

Work tree_work(Collective collective, double n) {
  double others = n - 1;
  double levels = std::ceil(std::log2(n));
  switch (collective) {
    case Collective::all_reduce:
      return {2 * levels, 6, 3, 5};
    case Collective::broadcast:
    case Collective::reduce:
      return {levels, 3, 2, 4};
    default:
      return {levels, others, others, 3 * others + 2};
  }
}

// A rank that is not the root, where the two differ: they work side by side if there are cores for it.
std::optional<Work> leaf_work(Algorithm algorithm, Collective collective) {
  bool parcels = collective == Collective::gather || collective == Collective::scatter;
  if (algorithm != Algorithm::direct && !(algorithm == Algorithm::hierarchical && parcels))
    return std::nullopt;
  if (collective == Collective::reduce || collective == Collective::gather) return Work{0, 1, 0, 2};
  if (collective == Collective::scatter) return Work{0, 1, 1, 1};
  return std::nullopt;
}

// What is done within a host; what goes between hosts is the network model's.
Work hierarchical_work(Collective collective, double n, double per_host) {
  double hosts = n / per_host;
  double neighbours = per_host - 1;
  double taken = hosts * neighbours;  // blocks that come from neighbours, or parts
  switch (collective) {
    case Collective::all_reduce:
      return {3, 3 * taken + hosts, 2 * neighbours / per_host, 4};
    case Collective::broadcast:
      return {2, 1, 1, 2};
    case Collective::reduce:
      return {2, per_host, neighbours, 2};
    case Collective::gather:
    case Collective::scatter:
      return {2, per_host, 1, 2 * n};
    default:
      return {2, 2 * taken, taken, 2 * n};
  }
}

Work work_of(Algorithm algorithm, Collective collective, double n, const CostParameters& p) {
  double others = n - 1;
  double levels = std::ceil(std::log2(n));
  // Ranks beyond a power of two hand their part to another first, and get the result from it.
  double folded = std::has_single_bit(static_cast<unsigned>(n)) ? 0 : 2;
  switch (algorithm) {
    case Algorithm::flat:
      return {1, n, others, 4};
    case Algorithm::direct:
      return direct_work(collective, n, p.shared_pointers);
    case Algorithm::pairwise:
      return {others, 2 * others, others, 3 * others + 2};
    case Algorithm::ring:
      return ring_work(collective, n);
    case Algorithm::tree:
      return tree_work(collective, n);
    case Algorithm::halving_doubling:
      if (collective != Collective::all_reduce) return {levels, 2 * levels, others, 3 * others + 2};
      return {2 * levels + folded, 4 * levels + folded, 2 * others / n + folded, 6 * others / n + 2 * folded};
    case Algorithm::recursive_doubling:
      return {levels + folded, 2 * levels + folded, levels + folded, 4 * (levels + folded)};
    case Algorithm::bruck: {
      double moved = collective == Collective::all_to_all ? levels * n / 2 : others;
      return {levels, 2 * levels, moved, 3 * moved + 2 * n};
    }
    case Algorithm::hierarchical:
      return hierarchical_work(collective, n, p.ranks_per_host);
    case Algorithm::hierarchical_flat:
      return {2, p.ranks_per_host + n / p.ranks_per_host, p.ranks_per_host - 1.0, 4};
  }
  return {};
}

}  // namespace

double predicted_seconds(Algorithm algorithm, Collective collective, int ranks, std::size_t bytes,
                         const CostParameters& p) {
  auto size = static_cast<double>(bytes);
  if (ranks == 1) return size / p.local_bytes_per_second;
  auto seconds = [&](const Work& work) {
    return work.messages * p.message_seconds + size * work.crossed / p.crossed_bytes_per_second +
           size * work.local / p.local_bytes_per_second;
  };
  Work work = work_of(algorithm, collective, ranks, p);
  double busiest = seconds(work);
  double turns = std::max(1.0, p.ranks_per_core);
  if (turns == 1) return work.hops * p.hop_seconds + busiest;
  double average = busiest;
  if (auto leaf = leaf_work(algorithm, collective))
    average = (busiest + (ranks - 1) * seconds(*leaf)) / ranks;
  return work.hops * turns * p.switch_seconds + std::max(busiest, turns * average);
}

AlgorithmFilter::AlgorithmFilter() { allowed_.fill(kAll); }

AlgorithmFilter AlgorithmFilter::parse(const std::string& text) {
  AlgorithmFilter filter;
  for (const std::string& clause : split(text, ';')) {
    auto colon = clause.find(':');
    if (colon == std::string::npos) {
      filter.apply(clause, (1U << kCollectiveCount) - 1);
      continue;
    }
    auto collective = collective_named(clause.substr(0, colon));
    if (!collective || static_cast<int>(*collective) >= kCollectiveCount)
      fail(ncclInvalidArgument, "NCCL_ALGO={}: there is no collective \"{}\"; write e.g. allreduce:ring",
           text, clause.substr(0, colon));
    filter.apply(clause.substr(colon + 1), 1U << static_cast<unsigned>(*collective));
  }
  return filter;
}

void AlgorithmFilter::apply(const std::string& list, std::uint32_t collectives) {
  bool exclude = list.starts_with('^');
  std::uint32_t named = 0;
  for (const std::string& name : split(exclude ? list.substr(1) : list, ',')) {
    if (auto algorithm = algorithm_named(name)) {
      named |= 1U << static_cast<unsigned>(*algorithm);
    } else if (!is_known_to_nccl(name)) {
      std::string known;
      for (int a = 0; a < kAlgorithmCount; ++a)
        known += (a != 0 ? ", " : "") + std::string(name_of(static_cast<Algorithm>(a)));
      fail(ncclInvalidArgument, "NCCL_ALGO: there is no algorithm \"{}\"; there are {}", name, known);
    }
  }
  std::uint32_t allowed = exclude ? kAll & ~named : named;
  for (unsigned c = 0; c < kCollectiveCount; ++c)
    if ((collectives >> c & 1U) != 0) allowed_[c] = allowed;
}

bool AlgorithmFilter::allows(Collective collective, Algorithm algorithm) const {
  return (allowed_[static_cast<std::size_t>(collective)] >> static_cast<unsigned>(algorithm) & 1U) != 0;
}

// Where costs are equal, the one with the fewest steps.
constexpr std::array<Algorithm, kAlgorithmCount> kByPreference = {Algorithm::direct,
                                                                  Algorithm::flat,
                                                                  Algorithm::pairwise,
                                                                  Algorithm::recursive_doubling,
                                                                  Algorithm::halving_doubling,
                                                                  Algorithm::bruck,
                                                                  Algorithm::ring,
                                                                  Algorithm::tree,
                                                                  Algorithm::hierarchical,
                                                                  Algorithm::hierarchical_flat};

Algorithm select(Collective collective, int ranks, std::size_t bytes, const AlgorithmFilter& filter,
                 const CostParameters& parameters, NetworkModel* network) {
  const HostMap* hosts = network != nullptr ? &network->hosts() : nullptr;
  Algorithm best = Algorithm::direct;
  double best_seconds = 0;
  bool found = false;
  for (bool forced : {true, false}) {
    for (Algorithm algorithm : kByPreference) {
      if (!supports(algorithm, collective, ranks, hosts) || (forced && !filter.allows(collective, algorithm)))
        continue;
      double seconds = predicted_seconds(algorithm, collective, ranks, bytes, parameters);
      if (network != nullptr) seconds += network->seconds(algorithm, collective, bytes);
      if (found && seconds >= best_seconds) continue;
      found = true;
      best = algorithm;
      best_seconds = seconds;
    }
    if (found) break;
  }
  return best;
}

}  // namespace tutti
