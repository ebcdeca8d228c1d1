// SPDX-License-Identifier: BSD-3-Clause
#include "collectives.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace bench {
namespace {

constexpr std::array kNames = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
                               "alltoall",   "gather",     "scatter",        "sendrecv"};

bool sends(const Problem& p) {
  return p.rank == p.root || (p.kind != Kind::broadcast && p.kind != Kind::scatter);
}
bool receives(const Problem& p) {
  return p.rank == p.root || (p.kind != Kind::reduce && p.kind != Kind::gather);
}

std::size_t times(std::size_t count, int ranks) { return count * static_cast<std::size_t>(ranks); }

}  // namespace

Kind kind_named(const std::string& name) {
  return static_cast<Kind>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
}
const char* name_of(Kind kind) { return kNames[static_cast<std::size_t>(kind)]; }
bool has_blocks(Kind kind) {
  return kind == Kind::all_gather || kind == Kind::reduce_scatter || kind == Kind::alltoall ||
         kind == Kind::gather || kind == Kind::scatter;
}
bool has_root(Kind kind) {
  return kind == Kind::broadcast || kind == Kind::reduce || kind == Kind::gather || kind == Kind::scatter;
}
bool reduces(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
}
bool checks_in_place(Kind kind) { return kind != Kind::sendrecv; }

std::size_t count_for(Kind kind, std::size_t bytes, std::size_t element, int ranks) {
  std::size_t count = bytes / element;
  if (!has_blocks(kind)) return count;
  return count / static_cast<std::size_t>(ranks) & ~(16 / element - 1);
}

std::size_t send_elements(Kind kind, std::size_t count, int ranks) {
  bool all = kind == Kind::reduce_scatter || kind == Kind::alltoall || kind == Kind::scatter;
  return all ? times(count, ranks) : count;
}
std::size_t receive_elements(Kind kind, std::size_t count, int ranks) {
  bool all = kind == Kind::all_gather || kind == Kind::alltoall || kind == Kind::gather;
  return all ? times(count, ranks) : count;
}
std::size_t size_column(Kind kind, std::size_t count, std::size_t element, int ranks) {
  return std::max(send_elements(kind, count, ranks), receive_elements(kind, count, ranks)) * element;
}

double bus_factor(Kind kind, int ranks) {
  double n = ranks;
  switch (kind) {
    case Kind::all_reduce:
      return 2 * (n - 1) / n;
    case Kind::broadcast:
    case Kind::reduce:
    case Kind::sendrecv:
      return 1;
    default:
      return (n - 1) / n;
  }
}

Buffers arguments(const Problem& p, const Buffers& buffers) {
  if (!p.in_place) return buffers;
  std::size_t own = static_cast<std::size_t>(p.rank) * p.count * p.element();
  switch (p.kind) {
    case Kind::all_gather:
    case Kind::gather:
      return {buffers.receive + (receives(p) ? own : 0), buffers.receive};
    case Kind::reduce_scatter:
    case Kind::scatter:
      return {buffers.send, buffers.send + (sends(p) ? own : 0)};
    case Kind::sendrecv:
      return buffers;
    default:
      return {buffers.receive, buffers.receive};
  }
}

void prepare(const Problem& p, const Buffers& buffers) {
  Buffers call = arguments(p, buffers);
  std::size_t element = p.element();
  if (receives(p)) std::memset(call.receive, 0xA5, receive_elements(p.kind, p.count, p.ranks) * element);
  if (!sends(p)) return;
  auto period = reduces(p.kind) ? values::reduction_input(p.type, p.op, p.rank, p.ranks)
                                : values::plain_input(p.type, p.rank);
  values::fill(call.send, period, element, 0, send_elements(p.kind, p.count, p.ranks));
}

std::size_t check(const Problem& p, const Buffers& buffers) {
  if (!receives(p)) return 0;
  const std::byte* data = arguments(p, buffers).receive;
  std::size_t element = p.element();
  std::size_t own = static_cast<std::size_t>(p.rank) * p.count;
  if (reduces(p.kind)) {
    std::size_t offset = p.kind == Kind::reduce_scatter ? own : 0;
    return values::count_wrong(data, values::reduction_result(p.type, p.op, p.ranks), element, offset,
                               p.count);
  }
  auto from = [&](int rank, std::size_t at, std::size_t offset) {
    return values::count_wrong(data + at * element, values::plain_input(p.type, rank), element, offset,
                               p.count);
  };
  switch (p.kind) {
    case Kind::broadcast:
      return from(p.root, 0, 0);
    case Kind::scatter:
      return from(p.root, 0, own);
    case Kind::sendrecv:
      return from((p.rank - 1 + p.ranks) % p.ranks, 0, 0);
    default:
      break;
  }
  std::size_t wrong = 0;
  for (int r = 0; r < p.ranks; ++r)
    wrong += from(r, static_cast<std::size_t>(r) * p.count, p.kind == Kind::alltoall ? own : 0);
  return wrong;
}

}  // namespace bench
