// SPDX-License-Identifier: BSD-3-Clause
//
// src/algorithms: what each rank does in a collective, as data. An algorithm is a pure function from a Shape
// to a Schedule; a schedule can be proved (verify.hpp), costed (select.hpp), printed and executed. Nothing
// here knows memory addresses, transports or element types.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class Collective : std::uint8_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  send,
  receive,
};
inline constexpr int kCollectiveCount = 8;  // without send and receive

enum class Algorithm : std::uint8_t {
  ring,
  tree,
  direct,
  flat,
  halving_doubling,
  recursive_doubling,
  bruck,
  pairwise,
  hierarchical,
  hierarchical_flat,
};
inline constexpr int kAlgorithmCount = 10;

/// "AllReduce": as in the C function's name behind "nccl".
std::string_view name_of(Collective collective);
/// "ring", "halving_doubling": as in NCCL_ALGO.
std::string_view name_of(Algorithm algorithm);
std::optional<Algorithm> algorithm_named(std::string_view name);
/// "allreduce", "all_reduce", "AllReduce" ...
std::optional<Collective> collective_named(std::string_view name);

constexpr bool is_reducing(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce || c == Collective::reduce_scatter;
}
constexpr bool is_point_to_point(Collective c) { return c >= Collective::send; }
constexpr bool has_root(Collective c) {
  return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather ||
         c == Collective::scatter;
}

/// The host of each rank, numbered from 0 in the order of their first ranks.
using HostMap = std::vector<int>;
int most_on_a_host(const HostMap& hosts);

/// Everything that a schedule depends on. `count` is the count of the C call: elements per rank.
struct Shape {
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  int rank = 0;
  int root = 0;
  std::size_t count = 0;
  bool in_place = false;
  std::size_t slice = 1;           ///< most elements of one message; see Schedule
  const HostMap* hosts = nullptr;  ///< null: all ranks on one host
};

/// Elements of a rank's input and output for this shape (0 where the rank has none, as a non-root in reduce).
std::size_t input_count(const Shape& shape);
std::size_t output_count(const Shape& shape);
/// Where the in-place form lays one buffer in the other: the offset, in elements, of the smaller one.
std::size_t in_place_offset(const Shape& shape);

enum class Buffer : std::uint8_t { none, input, output, scratch };

/// Where a step's elements lie; how many they are stands in the step.
struct Range {
  Buffer buffer = Buffer::none;
  std::size_t offset = 0;
  explicit operator bool() const { return buffer != Buffer::none; }
};

/// Lanes that lead from one rank to another: numbered ordered streams of messages. The last one carries
/// point-to-point calls, so that these never mix with collectives.
inline constexpr int kLaneCount = 5;
inline constexpr int kPointToPointLane = 4;

/// A step takes elements in, combines them, and gives them out. Operands are `in` and the next message of
/// each rank in `from`; they are combined in ascending order of rank, the local one in its own place, so that
/// a result has the same bits wherever it is computed. One operand makes it a copy or a forward.
///
/// A message may come with a *landing*: memory of its sender. A step that gives to the very ranks that it
/// takes from stores its result there as well, if every message that it took has a landing that this rank can
/// reach (threads of one process, windows); what it then sends says just that, and is received where it lies.
struct Step {
  Range in;               ///< local operand, or none
  std::vector<int> from;  ///< ranks, ascending
  Range out;              ///< where the result is stored, or nowhere
  std::vector<int> to;    ///< ranks who are sent the result, ascending
  std::size_t count = 0;  ///< elements of every range and message of the step
  std::uint8_t from_lane = 0;
  std::uint8_t to_lane = 0;
  bool finish = false;  ///< apply the operator's last touch (divide for avg); once per output element
  Range landing;        ///< with `to`: where in the output this rank will receive the answer, or none
};

using Track = std::vector<Step>;

/// Whether what the step gives out is its local operand, as it is. It then sends before it stores.
constexpr bool is_local_copy(const Step& step) { return step.from.empty() && !step.finish; }

/// Where receivers can read the step's message in place, if it lies in the rank's buffers.
constexpr Range place_of_message(const Step& step) {
  Range place = is_local_copy(step) ? step.in : step.out;
  return place.buffer == Buffer::scratch ? Range{} : place;
}

/// One rank's part. Tracks run concurrently, the steps of a track in order, in *rounds*: round j handles
/// elements [j * slice, (j+1) * slice) of every step before round j+1 begins, so that long operations
/// pipeline by themselves and no message is longer than a slice. Steps with fewer elements drop out of the
/// later rounds.
///
/// Ranges of the input and the output advance with the round; scratch ranges do not: scratch holds one slice
/// of whatever is in it, and never grows with the message.
///
/// A read of an input element by a reducing collective is where premul_sum scales it.
struct Schedule {
  std::vector<Track> tracks;
  std::size_t scratch = 0;  ///< elements
  /// Memory that messages are sent from is not overwritten before its receivers have read it, so they may
  /// read it in place (verify proves the claim).
  bool stable_sends = false;
};

/// A contiguous part of a buffer.
struct Chunk {
  std::size_t offset = 0;
  std::size_t count = 0;
};

/// Part `index` of `parts` nearly equal ones. Long buffers are cut at multiples of 16 elements, so that the
/// parts keep the alignment of the whole.
Chunk chunk_of(std::size_t count, int parts, int index);

/// Whether the algorithm exists for the collective, this number of ranks, and where they are.
bool supports(Algorithm algorithm, Collective collective, int ranks, const HostMap* hosts = nullptr);

/// The schedule of shape.rank. Throws ncclInternalError when it is not supported.
Schedule build(Algorithm algorithm, const Shape& shape);

/// The schedule of a send to or a receive from the rank in shape.root, on the lane of these calls.
Schedule point_to_point(const Shape& shape);

/// One line per step, for people.
std::string describe(const Schedule& schedule);

}  // namespace tutti
