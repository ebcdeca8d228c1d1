// SPDX-License-Identifier: BSD-3-Clause
//
// The algorithms, one function each, for build(); shape.ranks >= 2.
#pragma once
#include <algorithm>

#include "algorithms/schedule.hpp"

namespace tutti::algorithms {

Schedule ring(const Shape& shape);
Schedule tree(const Shape& shape);
Schedule direct(const Shape& shape);
Schedule flat(const Shape& shape);
Schedule halving_doubling(const Shape& shape);
Schedule recursive_doubling(const Shape& shape);
Schedule bruck(const Shape& shape);
Schedule pairwise(const Shape& shape);
Schedule hierarchical(const Shape& shape);
Schedule hierarchical_flat(const Shape& shape);

/// Rank at a distance in the ring of all ranks.
inline int shifted(const Shape& shape, int distance) {
  int n = shape.ranks;
  return ((shape.rank + distance) % n + n) % n;
}

/// All ranks but this one, ascending.
inline std::vector<int> others(const Shape& shape) {
  std::vector<int> ranks;
  for (int r = 0; r < shape.ranks; ++r)
    if (r != shape.rank) ranks.push_back(r);
  return ranks;
}

inline Range input(std::size_t offset) { return {Buffer::input, offset}; }
inline Range output(std::size_t offset) { return {Buffer::output, offset}; }
inline Range scratch(std::size_t offset) { return {Buffer::scratch, offset}; }

/// Block `index` of an input or output that holds one block per rank.
inline std::size_t block(const Shape& shape, int index) {
  return static_cast<std::size_t>(index) * shape.count;
}

/// Elements of a block that one round handles: the room that scratch needs for it.
inline std::size_t window(const Shape& shape) { return std::min(shape.slice, shape.count); }

/// Copies the rank's own block where the collective leaves it: step for the range pair.
inline Step copy(Range in, Range out, std::size_t count) {
  return {.in = in, .from = {}, .out = out, .to = {}, .count = count};
}
inline Step send(Range in, int to, std::size_t count, std::uint8_t lane = 0) {
  return {.in = in, .from = {}, .out = {}, .to = {to}, .count = count, .to_lane = lane};
}
inline Step receive(int from, Range out, std::size_t count, std::uint8_t lane = 0) {
  return {.in = {}, .from = {from}, .out = out, .to = {}, .count = count, .from_lane = lane};
}

}  // namespace tutti::algorithms
