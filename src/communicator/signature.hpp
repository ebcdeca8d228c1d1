// SPDX-License-Identifier: BSD-3-Clause
//
// src/communicator: the life of a communicator: joining, ordering its operations, choosing algorithms, and
// telling everyone when something goes wrong.
#pragma once
#include <string>

#include "algorithms/schedule.hpp"
#include "reduce/types.hpp"
#include "transport/lane.hpp"

namespace tutti {

/// One call of the API, checked.
struct Operation {
  Collective collective = Collective::all_reduce;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::float32;
  Operator op;
  int root = 0;  ///< root, or the peer of send and receive
};

/// A call as it travels in messages. Send and receive have the same one, so that they can meet.
struct Signature {
  std::uint32_t sequence = 0;  ///< number of the collective in its communicator; 0 for send and receive
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  OperatorKind op = OperatorKind::sum;
  Algorithm algorithm = Algorithm::direct;
  int root = 0;
  std::uint64_t count = 0;

  CallHeader pack() const;
  static Signature unpack(const CallHeader& header);
  /// The packed form with another sequence number, where it had 0.
  static CallHeader numbered(const CallHeader& header, std::uint32_t sequence) {
    return {header.call | static_cast<std::uint64_t>(sequence) << 32, header.count};
  }
  /// "ncclAllReduce(count 4, float, sum) [operation 17, ring]"
  std::string in_words() const;
};

}  // namespace tutti
