// SPDX-License-Identifier: BSD-3-Clause
//
// Exchanges with partners at distances 1, 2, 4 ...: logarithmically many messages. Thakur, Rabenseifner and
// Gropp, "Optimization of collective communication operations in MPICH", 2005.
//
// Ranks beyond a power of two are folded: of the first 2 * extra ranks the even ones give their input to the
// odd one above, stay out, and get the result at the end. Nodes are the ranks that take part, in order of
// rank.
#include <bit>

#include "algorithms/builders.hpp"

namespace tutti::algorithms {
namespace {

struct Folding {
  int nodes = 1;  // largest power of two that is not above the number of ranks
  int extra = 0;  // ranks that stay out
  int node = -1;  // this rank's, -1: it stays out

  explicit Folding(const Shape& s)
      : nodes(static_cast<int>(std::bit_floor(static_cast<unsigned>(s.ranks)))), extra(s.ranks - nodes) {
    if (s.rank >= 2 * extra)
      node = s.rank - extra;
    else if (s.rank % 2 == 1)
      node = s.rank / 2;
  }
  int rank_of(int n) const { return n < extra ? 2 * n + 1 : n + extra; }
  bool receives_fold(const Shape& s) const { return s.rank < 2 * extra && s.rank % 2 == 1; }
};

// The partner sends what this rank keeps, and the other way round: one exchange, first giving, then taking,
// so that a lane never holds more than one message of it.
void exchange(Track& track, int partner, Range give, std::size_t give_count, Step take) {
  track.push_back(send(give, partner, give_count));
  take.from = {partner};
  track.push_back(std::move(take));
}

Step accumulate(Range in, Range out, std::size_t count) {
  return {.in = in, .from = {}, .out = out, .to = {}, .count = count};
}

// Chunks [begin, end) of the buffer, in pieces that every step of the schedule can agree on: all of it while
// a message can carry the whole buffer, chunk by chunk in longer operations, whose rounds take the slices of
// the same chunk together.
std::vector<Chunk> pieces(const Shape& s, int parts, int begin, int end) {
  std::vector<Chunk> result;
  if (begin == end) return result;
  if (s.count <= s.slice) {
    Chunk last = chunk_of(s.count, parts, end - 1);
    std::size_t from = chunk_of(s.count, parts, begin).offset;
    return {{from, last.offset + last.count - from}};
  }
  for (int i = begin; i < end; ++i) result.push_back(chunk_of(s.count, parts, i));
  return result;
}

// Halving to reduce, doubling to gather (Rabenseifner's all-reduce).
Schedule all_reduce(const Shape& s) {
  Folding fold(s);
  Track track;
  auto all = pieces(s, fold.nodes, 0, fold.nodes);
  if (fold.node < 0) {
    for (const Chunk& c : all) track.push_back(send(input(c.offset), s.rank + 1, c.count));
    for (const Chunk& c : all) track.push_back(receive(s.rank + 1, output(c.offset), c.count));
    return {.tracks = {track}};
  }
  bool accumulated = fold.receives_fold(s);
  if (accumulated)
    for (const Chunk& c : all) {
      Step step = accumulate(input(c.offset), output(c.offset), c.count);
      step.from = {s.rank - 1};
      track.push_back(step);
    }
  int begin = 0;
  int end = fold.nodes;
  for (int distance = fold.nodes / 2; distance >= 1; distance /= 2) {
    int partner = fold.rank_of(fold.node ^ distance);
    int middle = begin + distance;
    bool upper = (fold.node & distance) != 0;
    auto kept = upper ? pieces(s, fold.nodes, middle, end) : pieces(s, fold.nodes, begin, middle);
    auto given = upper ? pieces(s, fold.nodes, begin, middle) : pieces(s, fold.nodes, middle, end);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      auto source = [&](const Chunk& c) { return accumulated ? output(c.offset) : input(c.offset); };
      Step take = accumulate(source(kept[i]), output(kept[i].offset), kept[i].count);
      take.finish = distance == 1;
      exchange(track, partner, source(given[i]), given[i].count, take);
    }
    accumulated = true;
    (upper ? begin : end) = middle;
  }
  for (int distance = 1; distance < fold.nodes; distance *= 2) {
    int partner = fold.rank_of(fold.node ^ distance);
    bool upper = (fold.node & distance) != 0;
    int other = upper ? begin - distance : end;
    auto held = pieces(s, fold.nodes, begin, end);
    auto wanted = pieces(s, fold.nodes, other, other + distance);
    for (std::size_t i = 0; i < held.size(); ++i)
      exchange(track, partner, output(held[i].offset), held[i].count,
               receive(partner, output(wanted[i].offset), wanted[i].count));
    begin = std::min(begin, other);
    end = begin + 2 * distance;
  }
  if (fold.receives_fold(s))
    for (const Chunk& c : all) track.push_back(send(output(c.offset), s.rank - 1, c.count));
  return {.tracks = {track}};
}

// Blocks per message: all that go to the partner while they fit in one.
int blocks_per_message(const Shape& s) {
  return s.count * static_cast<std::size_t>(s.ranks / 2) <= s.slice ? s.ranks : 1;
}

// Recursive halving; the partial sums of the blocks that are still ours are in scratch.
Schedule reduce_scatter(const Shape& s) {
  Track track;
  std::size_t width = window(s);
  int begin = 0;
  int end = s.ranks;
  int most = blocks_per_message(s);
  for (int distance = s.ranks / 2; distance >= 1; distance /= 2) {
    int partner = s.rank ^ distance;
    int middle = begin + distance;
    bool upper = (s.rank & distance) != 0;
    int keep = upper ? middle : begin;
    int give = upper ? begin : middle;
    bool first = distance == s.ranks / 2;
    auto source = [&](int b) {
      return first ? input(block(s, b)) : scratch(static_cast<std::size_t>(b) * width);
    };
    int group = std::min(most, distance);
    for (int i = 0; i < distance; i += group) {
      std::size_t count = s.count * static_cast<std::size_t>(group);
      Step take = accumulate(source(keep + i), scratch(static_cast<std::size_t>(keep + i) * width), count);
      if (distance == 1) {
        take.out = output(0);
        take.finish = true;
      }
      exchange(track, partner, source(give + i), count, take);
    }
    begin = keep;
    end = keep + distance;
  }
  (void)end;
  return {.tracks = {track}, .scratch = static_cast<std::size_t>(s.ranks) * width};
}

// Recursive doubling straight in the output.
Schedule all_gather(const Shape& s) {
  Track track{copy(input(0), output(block(s, s.rank)), s.count)};
  int most = blocks_per_message(s);
  for (int distance = 1; distance < s.ranks; distance *= 2) {
    int partner = s.rank ^ distance;
    int mine = s.rank & ~(distance - 1);
    int theirs = mine ^ distance;
    int group = std::min(most, distance);
    for (int i = 0; i < distance; i += group) {
      std::size_t count = s.count * static_cast<std::size_t>(group);
      exchange(track, partner, output(block(s, mine + i)), count,
               receive(partner, output(block(s, theirs + i)), count));
    }
  }
  return {.tracks = {track}};
}

}  // namespace

Schedule halving_doubling(const Shape& s) {
  Schedule schedule = s.collective == Collective::all_reduce   ? all_reduce(s)
                      : s.collective == Collective::all_gather ? all_gather(s)
                                                               : reduce_scatter(s);
  schedule.stable_sends = true;
  return schedule;
}

// All of the buffer to a partner at every distance: both compute the same sum, lower ranks first, so the bits
// agree. The sums are overwritten while they are on their way: they are sent as copies.
Schedule recursive_doubling(const Shape& s) {
  Folding fold(s);
  Track track;
  if (fold.node < 0) {
    track.push_back(send(input(0), s.rank + 1, s.count));
    track.push_back(receive(s.rank + 1, output(0), s.count));
    return {.tracks = {track}};
  }
  Range sum = input(0);
  if (fold.receives_fold(s)) {
    Step step = accumulate(sum, output(0), s.count);
    step.from = {s.rank - 1};
    track.push_back(step);
    sum = output(0);
  }
  for (int distance = 1; distance < fold.nodes; distance *= 2) {
    Step take = accumulate(sum, output(0), s.count);
    take.finish = 2 * distance == fold.nodes;
    exchange(track, fold.rank_of(fold.node ^ distance), sum, s.count, take);
    sum = output(0);
  }
  if (fold.receives_fold(s)) track.push_back(send(output(0), s.rank - 1, s.count));
  return {.tracks = {track}};
}

}  // namespace tutti::algorithms
