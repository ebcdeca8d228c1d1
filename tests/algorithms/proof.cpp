// SPDX-License-Identifier: BSD-3-Clause
//
// Proves one algorithm for every collective it has, every root, in place and not. Arguments: the algorithm
// and the numbers of ranks, each "n" or "first-last".
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "algorithms/verify.hpp"
#include "base/error.hpp"

using namespace tutti;

namespace {

long proved = 0;
long failed = 0;

// Ranks on hosts: filled one after the other, dealt out in turn, unevenly, at random.
std::vector<HostMap> maps_of(int ranks) {
  std::vector<HostMap> maps;
  std::mt19937 random(static_cast<unsigned>(ranks));
  auto add = [&](auto host_of) {
    HostMap map;
    std::vector<int> seen;  // hosts, in the order of their first ranks
    for (int r = 0; r < ranks; ++r) {
      int host = host_of(r);
      auto found = std::ranges::find(seen, host);
      if (found == seen.end()) found = seen.insert(found, host);
      map.push_back(static_cast<int>(found - seen.begin()));
    }
    maps.push_back(map);
  };
  for (int per_host : {2, 3, 4, 8}) {
    add([&](int r) { return r / per_host; });
    add([&](int r) { return r % per_host; });
  }
  add([&](int r) { return r == 0 ? 0 : 1; });
  add([&](int r) { return r < 2 ? 0 : r; });
  for (int i = 0; i < 3; ++i) add([&](int) { return static_cast<int>(random() % 4); });
  return maps;
}

void prove(Algorithm algorithm, const Shape& shape) {
  std::string fault = verify(algorithm, shape);
  if (fault.empty()) {
    ++proved;
    return;
  }
  ++failed;
  std::string hosts;
  if (shape.hosts != nullptr) hosts = fmt::format(" hosts {}", fmt::join(*shape.hosts, ","));
  std::printf("%s %s ranks %d root %d count %zu slice %zu%s%s: %s\n", std::string(name_of(algorithm)).c_str(),
              std::string(name_of(shape.collective)).c_str(), shape.ranks, shape.root, shape.count,
              shape.slice, shape.in_place ? " in place" : "", hosts.c_str(), fault.c_str());
}

void prove_all(Algorithm algorithm, int ranks, const HostMap* hosts) {
  auto n = static_cast<std::size_t>(ranks);
  for (int c = 0; c < kCollectiveCount; ++c) {
    auto collective = static_cast<Collective>(c);
    if (!supports(algorithm, collective, ranks, hosts)) continue;
    // Counts with uneven parts; several rounds of one element; everything in one message.
    bool blocks =
        output_count({collective, ranks, 0, 0, 1}) > 1 || input_count({collective, ranks, 0, 0, 1}) > 1;
    std::size_t count = blocks ? 2 : n + n / 2 + 1;
    int roots = has_root(collective) ? ranks : 1;
    for (int root = 0; root < roots; ++root)
      for (bool in_place : {false, true}) {
        prove(algorithm, {collective, ranks, 0, root, count, in_place, 1, hosts});
        if (root != 0 && ranks > 16) continue;  // what follows does not depend on the root's number
        prove(algorithm, {collective, ranks, 0, root, count, in_place, count * n, hosts});
        prove(algorithm, {collective, ranks, 0, root, 1, in_place, 1, hosts});
        // Messages that can hold the blocks of small hosts and not those of large ones.
        if (hosts != nullptr)
          prove(algorithm, {collective, ranks, 0, root, count, in_place, count * 2, hosts});
      }
  }
}

}  // namespace

int main(int argc, char** argv) {
  auto algorithm = argc > 2 ? algorithm_named(argv[1]) : std::nullopt;
  if (!algorithm) {
    std::fprintf(stderr, "usage: proof ALGORITHM RANKS...\n");
    return 2;
  }
  for (int i = 2; i < argc; ++i) {
    std::string range = argv[i];
    auto dash = range.find('-');
    int first = std::atoi(range.c_str());
    int last = dash == std::string::npos ? first : std::atoi(range.c_str() + dash + 1);
    bool levels = *algorithm == Algorithm::hierarchical || *algorithm == Algorithm::hierarchical_flat;
    for (int n = first; n <= last; ++n) {
      if (!levels) prove_all(*algorithm, n, nullptr);
      for (const HostMap& map : maps_of(n))
        if (levels) prove_all(*algorithm, n, &map);
    }
  }
  std::printf("%ld proved, %ld failed\n", proved, failed);
  return failed == 0 && proved > 0 ? 0 : 1;
}
