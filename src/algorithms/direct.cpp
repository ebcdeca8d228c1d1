// SPDX-License-Identifier: BSD-3-Clause
//
// One hop between any two ranks, and reductions of n operands at once: the fewest bytes through memory, the
// best within a host. `flat` is its latency form for all-reduce: every rank reduces everything.
#include "algorithms/builders.hpp"

namespace tutti::algorithms {
namespace {

// Lane 0 brings every rank the parts of its shard, lane 1 the finished shards. Three tracks, so that giving,
// reducing and taking go on side by side. Who reduces can store the result in all outputs, where the parts
// say that it belongs: every input is read once and every output written once then, the least that memory can
// do.
Schedule all_reduce(const Shape& s) {
  Track give, reduce, take;
  auto part = [&](int r) { return chunk_of(s.count, s.ranks, r); };
  for (int k = 1; k < s.ranks; ++k) {
    int p = shifted(s, k);
    give.push_back(send(input(part(p).offset), p, part(p).count));
    give.back().landing = output(part(p).offset);
  }
  Chunk mine = part(s.rank);
  reduce.push_back({.in = input(mine.offset),
                    .from = others(s),
                    .out = output(mine.offset),
                    .to = others(s),
                    .count = mine.count,
                    .from_lane = 0,
                    .to_lane = 1,
                    .finish = true});
  for (int k = 1; k < s.ranks; ++k) {
    int p = shifted(s, -k);
    take.push_back(receive(p, output(part(p).offset), part(p).count, 1));
  }
  return {.tracks = {give, reduce, take}};
}

Schedule reduce_scatter(const Shape& s) {
  Track give;
  for (int k = 1; k < s.ranks; ++k) {
    int p = shifted(s, k);
    give.push_back(send(input(block(s, p)), p, s.count));
  }
  Step reduce{.in = input(block(s, s.rank)), .from = others(s), .out = output(0), .to = {}, .count = s.count};
  reduce.finish = true;
  return {.tracks = {give, {reduce}}};
}

Schedule all_gather(const Shape& s) {
  Step give{.in = input(0), .from = {}, .out = output(block(s, s.rank)), .to = others(s), .count = s.count};
  Track take;
  for (int k = 1; k < s.ranks; ++k) {
    int p = shifted(s, -k);
    take.push_back(receive(p, output(block(s, p)), s.count));
  }
  return {.tracks = {{give}, take}};
}

Schedule broadcast(const Shape& s) {
  if (s.rank != s.root) return {.tracks = {{receive(s.root, output(0), s.count)}}};
  Step give{.in = input(0), .from = {}, .out = output(0), .to = others(s), .count = s.count};
  return {.tracks = {{give}}};
}

Schedule reduce(const Shape& s) {
  if (s.rank != s.root) return {.tracks = {{send(input(0), s.root, s.count)}}};
  Step take{.in = input(0), .from = others(s), .out = output(0), .to = {}, .count = s.count};
  take.finish = true;
  return {.tracks = {{take}}};
}

Schedule all_to_all(const Shape& s) {
  if (s.in_place) return pairwise(s);  // every block must be saved before it is overwritten
  Track give, take;
  for (int k = 1; k < s.ranks; ++k) {
    int to = shifted(s, k);
    int from = shifted(s, -k);
    give.push_back(send(input(block(s, to)), to, s.count));
    take.push_back(receive(from, output(block(s, from)), s.count));
  }
  give.push_back(copy(input(block(s, s.rank)), output(block(s, s.rank)), s.count));  // nobody waits for it
  return {.tracks = {give, take}};
}

Schedule gather(const Shape& s) {
  if (s.rank != s.root) return {.tracks = {{send(input(0), s.root, s.count)}}};
  Track take{copy(input(0), output(block(s, s.rank)), s.count)};
  for (int p : others(s)) take.push_back(receive(p, output(block(s, p)), s.count));
  return {.tracks = {take}};
}

Schedule scatter(const Shape& s) {
  if (s.rank != s.root) return {.tracks = {{receive(s.root, output(0), s.count)}}};
  Track give;
  for (int p : others(s)) give.push_back(send(input(block(s, p)), p, s.count));
  give.push_back(copy(input(block(s, s.rank)), output(0), s.count));
  return {.tracks = {give}};
}

Schedule dispatch(const Shape& s) {
  switch (s.collective) {
    case Collective::all_reduce:
      return all_reduce(s);
    case Collective::broadcast:
      return broadcast(s);
    case Collective::reduce:
      return reduce(s);
    case Collective::all_gather:
      return all_gather(s);
    case Collective::reduce_scatter:
      return reduce_scatter(s);
    case Collective::all_to_all:
      return all_to_all(s);
    case Collective::gather:
      return gather(s);
    default:
      return scatter(s);
  }
}

}  // namespace

Schedule direct(const Shape& s) {
  Schedule schedule = dispatch(s);
  schedule.stable_sends = true;
  return schedule;
}

// One track: in place, a slice must be on its way to the others before the result overwrites it. It is sent
// as a copy for the same reason.
Schedule flat(const Shape& s) {
  Step give{.in = input(0), .from = {}, .out = {}, .to = others(s), .count = s.count};
  Step reduce{.in = input(0), .from = others(s), .out = output(0), .to = {}, .count = s.count};
  reduce.finish = true;
  return {.tracks = {{give, reduce}}};
}

}  // namespace tutti::algorithms
