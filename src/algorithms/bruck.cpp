// SPDX-License-Identifier: BSD-3-Clause
//
// Bruck's algorithms: logarithmically many messages for all-gather and all-to-all at any number of ranks, at
// the price of copies. Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
// communications in multiport message-passing systems", 1997. Pairwise exchange, its opposite: one message
// per pair of ranks.
#include <functional>

#include "algorithms/builders.hpp"

namespace tutti::algorithms {
namespace {

// Messages of several blocks while they fit in a slice, else block by block, giving and taking in turn.
template <class RangeOf>
void exchange_blocks(const Shape& s, Track& track, int to, int from, int blocks, RangeOf give, RangeOf take) {
  int group = s.count * static_cast<std::size_t>(blocks) <= s.slice ? blocks : 1;
  for (int i = 0; i < blocks; i += group) {
    std::size_t count = s.count * static_cast<std::size_t>(group);
    track.push_back(send(give(i), to, count));
    track.push_back(receive(from, take(i), count));
  }
}

// Scratch block i is the block of rank + i; the first `held` of them are there.
Schedule all_gather(const Shape& s) {
  std::size_t width = window(s);
  using RangeOf = std::function<Range(int)>;
  auto slot = [&](int i) { return scratch(static_cast<std::size_t>(i) * width); };
  Track track{copy(input(0), slot(0), s.count)};
  for (int held = 1; held < s.ranks; held *= 2) {
    int blocks = std::min(held, s.ranks - held);
    exchange_blocks<RangeOf>(s, track, shifted(s, -held), shifted(s, held), blocks, slot,
                             [&](int i) { return slot(held + i); });
  }
  for (int i = 0; i < s.ranks; ++i) track.push_back(copy(slot(i), output(block(s, shifted(s, i))), s.count));
  return {.tracks = {track}, .scratch = static_cast<std::size_t>(s.ranks) * width};
}

// Scratch block i is on its way to rank + i; in the phase of `distance` all those whose number has that bit
// move on by it. At the end block i has come from rank - i.
Schedule all_to_all(const Shape& s) {
  std::size_t width = window(s);
  auto n = static_cast<std::size_t>(s.ranks);
  using RangeOf = std::function<Range(int)>;
  auto slot = [&](int i) { return scratch(static_cast<std::size_t>(i) * width); };
  auto packed = [&](int i) { return scratch((n + static_cast<std::size_t>(i)) * width); };
  auto arrived = [&](int i) { return scratch((n + n / 2 + 1 + static_cast<std::size_t>(i)) * width); };
  Track track;
  for (int i = 0; i < s.ranks; ++i) track.push_back(copy(input(block(s, shifted(s, i))), slot(i), s.count));
  for (int distance = 1; distance < s.ranks; distance *= 2) {
    std::vector<int> moving;
    for (int i = 0; i < s.ranks; ++i)
      if ((i & distance) != 0) moving.push_back(i);
    auto blocks = static_cast<int>(moving.size());
    for (int k = 0; k < blocks; ++k)
      track.push_back(copy(slot(moving[static_cast<std::size_t>(k)]), packed(k), s.count));
    exchange_blocks<RangeOf>(s, track, shifted(s, distance), shifted(s, -distance), blocks, packed, arrived);
    for (int k = 0; k < blocks; ++k)
      track.push_back(copy(arrived(k), slot(moving[static_cast<std::size_t>(k)]), s.count));
  }
  for (int i = 0; i < s.ranks; ++i) track.push_back(copy(slot(i), output(block(s, shifted(s, -i))), s.count));
  return {.tracks = {track}, .scratch = (2 * n + 2) * width};
}

}  // namespace

Schedule bruck(const Shape& s) {
  return s.collective == Collective::all_gather ? all_gather(s) : all_to_all(s);
}

// In place every block is saved before its place is overwritten: a slice of each, no more.
Schedule pairwise(const Shape& s) {
  std::size_t width = window(s);
  Track track;
  auto saved = [&](int b) { return scratch(static_cast<std::size_t>(b) * width); };
  if (s.in_place)
    for (int k = 1; k < s.ranks; ++k)
      track.push_back(copy(input(block(s, shifted(s, k))), saved(shifted(s, k)), s.count));
  else
    track.push_back(copy(input(block(s, s.rank)), output(block(s, s.rank)), s.count));
  for (int k = 1; k < s.ranks; ++k) {
    int to = shifted(s, k);
    int from = shifted(s, -k);
    track.push_back(send(s.in_place ? saved(to) : input(block(s, to)), to, s.count));
    track.push_back(receive(from, output(block(s, from)), s.count));
  }
  return {.tracks = {track},
          .scratch = s.in_place ? static_cast<std::size_t>(s.ranks) * width : 0,
          .stable_sends = true};
}

}  // namespace tutti::algorithms
