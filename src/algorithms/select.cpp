// SPDX-License-Identifier: BSD-3-Clause
#include "algorithms/select.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
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

// What the busiest rank does: hops one after the other, messages it handles, bytes it reads and writes.
struct Work {
  double hops = 0;
  double messages = 0;
  double bytes = 0;
};

Work work_of(Algorithm algorithm, Collective collective, double n, double bytes) {
  double others = n - 1;
  double levels = std::ceil(std::log2(n));
  bool folded = !std::has_single_bit(static_cast<unsigned>(n));
  switch (algorithm) {
    case Algorithm::flat:
      return {1, others + 1, (n + 1) * bytes};
    case Algorithm::direct:
      switch (collective) {
        case Collective::all_reduce:
          return {2, 2 * others + 1, (5 * n - 2) / n * bytes};
        case Collective::broadcast:
          return {1, others, 2 * bytes};
        case Collective::reduce:
          return {1, others, n * bytes};
        case Collective::all_gather:
          return {1, others, n * 2 * bytes};
        default:
          return {1, others, 2 * others * bytes};
      }
    case Algorithm::pairwise:
      return {others, 2 * others, 2.1 * others * bytes};
    case Algorithm::ring:
      switch (collective) {
        case Collective::all_reduce:
          return {2 * others, 2 * others, (6 * n - 4) / n * bytes};
        case Collective::broadcast:
        case Collective::reduce:
          return {others, 2, 4 * bytes};
        default:
          return {others, others, others * 3 * bytes};
      }
    case Algorithm::tree:
      switch (collective) {
        case Collective::all_reduce:
          return {2 * levels, 6, 7 * bytes};
        case Collective::broadcast:
        case Collective::reduce:
          return {levels, 3, 5 * bytes};
        default:
          return {levels, others, 3 * others * bytes};
      }
    case Algorithm::halving_doubling: {
      if (collective != Collective::all_reduce) return {levels, 2 * levels, 3.2 * others * bytes};
      double extra = folded ? 2 : 0;
      return {2 * levels + extra, 4 * levels + extra, (6.4 + 2 * extra) * bytes};
    }
    case Algorithm::recursive_doubling: {
      double extra = folded ? 2 : 0;
      return {levels + extra, 2 * levels + extra, (levels + extra) * 4 * bytes};
    }
    case Algorithm::bruck: {
      double moved = collective == Collective::all_to_all ? levels * n / 2 : n;
      return {levels, 2 * levels, (moved * 4 + 2 * n) * bytes};
    }
  }
  return {};
}

}  // namespace

double predicted_seconds(Algorithm algorithm, Collective collective, int ranks, std::size_t bytes,
                         const CostParameters& parameters) {
  if (ranks == 1) return static_cast<double>(bytes) / parameters.bytes_per_second;
  Work work = work_of(algorithm, collective, ranks, static_cast<double>(bytes));
  double turns = std::max(1.0, static_cast<double>(ranks) / parameters.cores);
  return work.hops * parameters.hop_seconds * turns +
         turns * (work.messages * parameters.message_seconds + work.bytes / parameters.bytes_per_second);
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

Algorithm select(Collective collective, int ranks, std::size_t bytes, const AlgorithmFilter& filter,
                 const CostParameters& parameters) {
  Algorithm best = Algorithm::direct;
  double best_seconds = 0;
  bool found = false;
  for (bool forced : {true, false}) {
    for (int a = 0; a < kAlgorithmCount; ++a) {
      auto algorithm = static_cast<Algorithm>(a);
      if (!supports(algorithm, collective, ranks) || (forced && !filter.allows(collective, algorithm)))
        continue;
      double seconds = predicted_seconds(algorithm, collective, ranks, bytes, parameters);
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
