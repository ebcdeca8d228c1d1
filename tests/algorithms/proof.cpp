// SPDX-License-Identifier: BSD-3-Clause
//
// Proves one algorithm for every collective it has, every root, in place and not. Arguments: the algorithm
// and the numbers of ranks, each "n" or "first-last".
#include <cstdio>
#include <cstdlib>
#include <string>

#include "algorithms/verify.hpp"

using namespace tutti;

namespace {

long proved = 0;
long failed = 0;

void prove(Algorithm algorithm, const Shape& shape) {
  std::string fault = verify(algorithm, shape);
  if (fault.empty()) {
    ++proved;
    return;
  }
  ++failed;
  std::printf("%s %s ranks %d root %d count %zu slice %zu%s: %s\n", std::string(name_of(algorithm)).c_str(),
              std::string(name_of(shape.collective)).c_str(), shape.ranks, shape.root, shape.count,
              shape.slice, shape.in_place ? " in place" : "", fault.c_str());
}

void prove_all(Algorithm algorithm, int ranks) {
  auto n = static_cast<std::size_t>(ranks);
  for (int c = 0; c < kCollectiveCount; ++c) {
    auto collective = static_cast<Collective>(c);
    if (!supports(algorithm, collective, ranks)) continue;
    // Counts with uneven parts; several rounds of one element; everything in one message.
    bool blocks =
        output_count({collective, ranks, 0, 0, 1}) > 1 || input_count({collective, ranks, 0, 0, 1}) > 1;
    std::size_t count = blocks ? 2 : n + n / 2 + 1;
    int roots = has_root(collective) ? ranks : 1;
    for (int root = 0; root < roots; ++root)
      for (bool in_place : {false, true}) {
        prove(algorithm, {collective, ranks, 0, root, count, in_place, 1});
        if (root != 0 && ranks > 16) continue;  // what follows does not depend on the root's number
        prove(algorithm, {collective, ranks, 0, root, count, in_place, count * n});
        prove(algorithm, {collective, ranks, 0, root, 1, in_place, 1});
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
    for (int n = first; n <= last; ++n) prove_all(*algorithm, n);
  }
  std::printf("%ld proved, %ld failed\n", proved, failed);
  return failed == 0 && proved > 0 ? 0 : 1;
}
