// SPDX-License-Identifier: BSD-3-Clause
//
// Rings and chains: every rank talks to its two neighbours alone. Best when links are few and messages long;
// latency grows with the number of ranks. Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
// clusters of workstations", 2009.
#include "algorithms/builders.hpp"

namespace tutti::algorithms {
namespace {

// The way of one chunk to its home: the rank after the home starts it, each next one adds its own part.
// Step k of a rank is about the chunk of home (rank - 1 - k).
template <class PartOf>
void reduce_to_homes(const Shape& s, Track& track, PartOf part) {
  std::vector<int> next{shifted(s, 1)};
  std::vector<int> previous{shifted(s, -1)};
  for (int k = 0; k < s.ranks - 1; ++k) {
    Chunk chunk = part(shifted(s, -1 - k));
    track.push_back({.in = input(chunk.offset),
                     .from = k == 0 ? std::vector<int>{} : previous,
                     .out = {},
                     .to = next,
                     .count = chunk.count});
  }
}

// The finished chunks go round: step k brings the chunk of home (rank - k), which is passed on unless the
// next rank is where it came from.
template <class PartOf>
void gather_from_homes(const Shape& s, Track& track, PartOf part) {
  for (int k = 1; k < s.ranks; ++k) {
    Chunk chunk = part(shifted(s, -k));
    Step step = receive(shifted(s, -1), output(chunk.offset), chunk.count);
    if (k < s.ranks - 1) step.to = {shifted(s, 1)};
    track.push_back(step);
  }
}

Schedule all_reduce(const Shape& s) {
  auto part = [&](int r) { return chunk_of(s.count, s.ranks, r); };
  Track track;
  reduce_to_homes(s, track, part);
  Chunk mine = part(s.rank);
  track.push_back({.in = input(mine.offset),
                   .from = {shifted(s, -1)},
                   .out = output(mine.offset),
                   .to = {shifted(s, 1)},
                   .count = mine.count,
                   .finish = true});
  gather_from_homes(s, track, part);
  return {.tracks = {track}};
}

Schedule reduce_scatter(const Shape& s) {
  Track track;
  reduce_to_homes(s, track, [&](int r) { return Chunk{block(s, r), s.count}; });
  track.push_back({.in = input(block(s, s.rank)),
                   .from = {shifted(s, -1)},
                   .out = output(0),
                   .to = {},
                   .count = s.count,
                   .finish = true});
  return {.tracks = {track}};
}

Schedule all_gather(const Shape& s) {
  Track track;
  track.push_back(
      {.in = input(0), .from = {}, .out = output(block(s, s.rank)), .to = {shifted(s, 1)}, .count = s.count});
  gather_from_homes(s, track, [&](int r) { return Chunk{block(s, r), s.count}; });
  return {.tracks = {track}};
}

// A chain that starts at the root.
Schedule broadcast(const Shape& s) {
  bool first = s.rank == s.root;
  bool last = shifted(s, 1) == s.root;
  Step step{.in = first ? input(0) : Range{},
            .from = first ? std::vector<int>{} : std::vector<int>{shifted(s, -1)},
            .out = output(0),
            .to = last ? std::vector<int>{} : std::vector<int>{shifted(s, 1)},
            .count = s.count};
  return {.tracks = {{step}}};
}

// A chain that ends at the root.
Schedule reduce(const Shape& s) {
  bool first = shifted(s, -1) == s.root;
  bool last = s.rank == s.root;
  Step step{.in = input(0),
            .from = first ? std::vector<int>{} : std::vector<int>{shifted(s, -1)},
            .out = last ? output(0) : Range{},
            .to = last ? std::vector<int>{} : std::vector<int>{shifted(s, 1)},
            .count = s.count,
            .finish = last};
  return {.tracks = {{step}}};
}

Schedule dispatch(const Shape& s) {
  switch (s.collective) {
    case Collective::all_reduce:
      return all_reduce(s);
    case Collective::reduce_scatter:
      return reduce_scatter(s);
    case Collective::all_gather:
      return all_gather(s);
    case Collective::broadcast:
      return broadcast(s);
    default:
      return reduce(s);
  }
}

}  // namespace

Schedule ring(const Shape& s) {
  Schedule schedule = dispatch(s);
  schedule.stable_sends = true;
  return schedule;
}

}  // namespace tutti::algorithms
