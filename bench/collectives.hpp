// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>

#include "nccl.h"
#include "values.hpp"

namespace bench {

enum class Kind {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  alltoall,
  gather,
  scatter,
  sendrecv
};
inline constexpr int kKindCount = 9;

/// The kind of "all_reduce" etc.; the name is known to be right (it comes from the build).
Kind kind_named(const std::string& name);
const char* name_of(Kind kind);
/// Whether one of the buffers holds a block per rank.
bool has_blocks(Kind kind);
bool has_root(Kind kind);
bool reduces(Kind kind);

/// One operation of a rank: what it is about and where its data is.
struct Problem {
  Kind kind = Kind::all_reduce;
  ncclDataType_t type = ncclFloat32;
  values::Op op = values::Op::sum;
  int root = 0;
  int rank = 0, ranks = 1;
  std::size_t count = 0;  ///< of the C call
  bool in_place = false;

  std::size_t element() const { return values::size_of(type); }
};

/// The count of the C call for a table row of `bytes` (nccl-tests' rounding: per-rank parts are cut down to
/// multiples of 16 bytes).
std::size_t count_for(Kind kind, std::size_t bytes, std::size_t element, int ranks);
/// Elements of a rank's send and receive buffers at most (over all roots).
std::size_t send_elements(Kind kind, std::size_t count, int ranks);
std::size_t receive_elements(Kind kind, std::size_t count, int ranks);
/// Bytes of the size column, and factor from algorithm to bus bandwidth.
std::size_t size_column(Kind kind, std::size_t count, std::size_t element, int ranks);
double bus_factor(Kind kind, int ranks);

/// The buffers of one rank. In place, the smaller lies in the larger.
struct Buffers {
  std::byte* send = nullptr;
  std::byte* receive = nullptr;
};
/// What is passed to the call.
Buffers arguments(const Problem& problem, const Buffers& buffers);

/// Writes this rank's input, and rubbish where output will be.
void prepare(const Problem& problem, const Buffers& buffers);
/// Elements of this rank's output that are wrong.
std::size_t check(const Problem& problem, const Buffers& buffers);
/// Whether the in-place form means anything for the kind.
bool checks_in_place(Kind kind);

}  // namespace bench
