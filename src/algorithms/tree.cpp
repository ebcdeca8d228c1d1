// SPDX-License-Identifier: BSD-3-Clause
//
// Trees: latency grows with the logarithm of the number of ranks. Reductions and broadcasts use two binary
// trees, each for half of the data, laid so that a rank is an inner node in at most one of them: both
// directions of every rank are busy. Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth
// broadcast, reduction and scan", 2009. Gather and scatter use a binomial tree.
#include <bit>

#include "algorithms/builders.hpp"

namespace tutti::algorithms {
namespace {

// A node's neighbours in a binary tree over nodes 0..n-1; -1: the node is the root.
struct Neighbours {
  int parent = -1;
  std::vector<int> children;
};

// The parent in the in-order tree over positions 1..n: odd positions are leaves, and a position's height is
// the number of its trailing zeros. 0 is above the root.
int parent_position(int position, int n) {
  int height_bit = position & -position;
  int up = (position ^ height_bit) | (height_bit << 1);
  return up > n ? position ^ height_bit : up;
}

// Tree 0 is the in-order tree; tree 1 is the same one shifted by a node, so that its inner nodes are the
// leaves of the other.
Neighbours neighbours(int node, int n, int tree) {
  auto position = [&](int v) { return (v + tree) % n + 1; };
  auto node_at = [&](int p) { return (p - 1 - tree + n) % n; };
  Neighbours result;
  if (int up = parent_position(position(node), n); up != 0) result.parent = node_at(up);
  for (int v = 0; v < n; ++v)
    if (parent_position(position(v), n) == position(node)) result.children.push_back(v);
  return result;
}

std::vector<int> sorted(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// Tree h reduces half h upwards on lane 2h and brings the result down on lane 2h+1; the root turns it round
// in one step.
Schedule all_reduce(const Shape& s) {
  Schedule schedule;
  for (int h = 0; h < 2; ++h) {
    Chunk half = chunk_of(s.count, 2, h);
    auto up_lane = static_cast<std::uint8_t>(2 * h);
    auto down_lane = static_cast<std::uint8_t>(2 * h + 1);
    Neighbours at = neighbours(s.rank, s.ranks, h);
    Step up{.in = input(half.offset), .from = at.children, .out = {}, .to = {}, .count = half.count};
    up.from_lane = up_lane;
    if (at.parent < 0) {
      up.out = output(half.offset);
      up.to = at.children;
      up.to_lane = down_lane;
      up.finish = true;
      schedule.tracks.push_back({up});
      continue;
    }
    up.to = {at.parent};
    up.to_lane = up_lane;
    Step down = receive(at.parent, output(half.offset), half.count, down_lane);
    down.to = at.children;
    down.to_lane = down_lane;
    schedule.tracks.push_back({up});
    schedule.tracks.push_back({down});
  }
  return schedule;
}

// For rooted collectives the two trees span the other ranks (node v is rank root + 1 + v), and the root
// serves the top of both. Half h travels on lane h.
struct RootedTree {
  int above = -1;  // rank towards the root, -1 for the root
  std::vector<int> below;
};

RootedTree rooted_tree(const Shape& s, int h) {
  int nodes = s.ranks - 1;
  auto rank_of = [&](int node) { return (s.root + 1 + node) % s.ranks; };
  RootedTree result;
  if (s.rank == s.root) {
    for (int v = 0; v < nodes; ++v)
      if (neighbours(v, nodes, h).parent < 0) result.below.push_back(rank_of(v));
    return result;
  }
  Neighbours at = neighbours((s.rank - s.root - 1 + s.ranks) % s.ranks, nodes, h);
  result.above = at.parent < 0 ? s.root : rank_of(at.parent);
  for (int v : at.children) result.below.push_back(rank_of(v));
  result.below = sorted(result.below);
  return result;
}

Schedule broadcast(const Shape& s) {
  Schedule schedule;
  for (int h = 0; h < 2; ++h) {
    Chunk half = chunk_of(s.count, 2, h);
    auto lane = static_cast<std::uint8_t>(h);
    RootedTree at = rooted_tree(s, h);
    Step step{.in = {}, .from = {}, .out = output(half.offset), .to = at.below, .count = half.count};
    step.from_lane = step.to_lane = lane;
    if (at.above < 0)
      step.in = input(half.offset);
    else
      step.from = {at.above};
    schedule.tracks.push_back({step});
  }
  return schedule;
}

Schedule reduce(const Shape& s) {
  Schedule schedule;
  for (int h = 0; h < 2; ++h) {
    Chunk half = chunk_of(s.count, 2, h);
    auto lane = static_cast<std::uint8_t>(h);
    RootedTree at = rooted_tree(s, h);
    Step step{.in = input(half.offset), .from = at.below, .out = {}, .to = {}, .count = half.count};
    step.from_lane = step.to_lane = lane;
    if (at.above < 0) {
      step.out = output(half.offset);
      step.finish = true;
    } else {
      step.to = {at.above};
    }
    schedule.tracks.push_back({step});
  }
  return schedule;
}

// Binomial tree over v = rank - root: the children of v are v + 1, v + 2, v + 4 ... below v's own lowest bit,
// and child v + k holds the blocks of [v + k, v + 2k).
struct Binomial {
  int node = 0;
  int parent = -1;
  std::vector<Chunk> children;  // offset: the child's node; count: how many nodes hang there, itself included
};

Binomial binomial(const Shape& s) {
  Binomial result;
  result.node = (s.rank - s.root + s.ranks) % s.ranks;
  int lowest = result.node == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(s.ranks)))
                                : result.node & -result.node;
  if (result.node != 0) result.parent = result.node - lowest;
  for (int k = 1; k < lowest && result.node + k < s.ranks; k *= 2)
    result.children.push_back({static_cast<std::size_t>(result.node + k),
                               static_cast<std::size_t>(std::min(k, s.ranks - result.node - k))});
  return result;
}

Schedule gather(const Shape& s) {
  Binomial at = binomial(s);
  auto rank_of = [&](std::size_t node) { return (static_cast<int>(node) + s.root) % s.ranks; };
  Track track;
  if (at.parent < 0)
    track.push_back(copy(input(0), output(block(s, s.rank)), s.count));
  else
    track.push_back(send(input(0), rank_of(static_cast<std::size_t>(at.parent)), s.count));
  for (const Chunk& child : at.children)
    for (std::size_t v = child.offset; v < child.offset + child.count; ++v) {
      Step step = receive(rank_of(child.offset), {}, s.count);
      if (at.parent < 0)
        step.out = output(block(s, rank_of(v)));
      else
        step.to = {rank_of(static_cast<std::size_t>(at.parent))};
      track.push_back(step);
    }
  return {.tracks = {track}};
}

Schedule scatter(const Shape& s) {
  Binomial at = binomial(s);
  auto rank_of = [&](std::size_t node) { return (static_cast<int>(node) + s.root) % s.ranks; };
  Track track;
  if (at.parent < 0)
    track.push_back(copy(input(block(s, s.rank)), output(0), s.count));
  else
    track.push_back(receive(rank_of(static_cast<std::size_t>(at.parent)), output(0), s.count));
  for (const Chunk& child : at.children)
    for (std::size_t v = child.offset; v < child.offset + child.count; ++v) {
      Step step = send(input(block(s, rank_of(v))), rank_of(child.offset), s.count);
      if (at.parent >= 0) {
        step.in = {};
        step.from = {rank_of(static_cast<std::size_t>(at.parent))};
      }
      track.push_back(step);
    }
  return {.tracks = {track}};
}

Schedule dispatch(const Shape& s) {
  switch (s.collective) {
    case Collective::all_reduce:
      return all_reduce(s);
    case Collective::broadcast:
      return broadcast(s);
    case Collective::reduce:
      return reduce(s);
    case Collective::gather:
      return gather(s);
    default:
      return scatter(s);
  }
}

}  // namespace

Schedule tree(const Shape& s) {
  Schedule schedule = dispatch(s);
  schedule.stable_sends = true;
  return schedule;
}

}  // namespace tutti::algorithms
