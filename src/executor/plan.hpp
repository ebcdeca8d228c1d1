// SPDX-License-Identifier: BSD-3-Clause
//
// src/executor: where schedules meet lanes. A Plan is a schedule bound to a communicator's lanes and an
// element type; an Execution runs one on buffers; drive() makes progress on several at once and sleeps when
// there is none.
#pragma once
#include <memory>
#include <vector>

#include "algorithms/schedule.hpp"
#include "executor/stores.hpp"
#include "reduce/kernels.hpp"
#include "reduce/types.hpp"
#include "transport/lanes.hpp"

namespace tutti {

/// A step with its lanes looked up and its offsets in bytes.
struct PlanStep {
  Range in, out, landing;  // offsets in bytes
  std::size_t count = 0;
  std::vector<Inlet*> inlets;
  int own_position = 0;  // of the local operand among all, in ascending order of rank
  Outlet* outlet = nullptr;
  std::size_t most_inline = kInlineBytes;  // messages up to this size are sent by value
  bool finish = false;
  bool scale = false;  // the local operand is input of a premul_sum
  int operand_count = 0;
  bool is_copy = false;         // one operand, as it is
  Range offered;                // where what is sent stays as it is until it has been read, or none
  Store store = Store::cached;  // of what goes to the output
  bool is_placed = false;       // what comes, from one rank, may be put where it is stored at once
  bool answers = false;         // goes to those it comes from, and may be stored in their landings
};

struct PlanTrack {
  std::vector<PlanStep> steps;
  std::size_t rounds = 0;
};

/// Immutable once made; one Plan may be executed again and again, but by one Execution at a time.
struct Plan {
  Shape shape;
  CallHeader header;                  // what its messages say, without a sequence number
  std::ptrdiff_t in_place_bytes = 0;  // from input to output, where the call is in place
  bool needs_input = false, needs_output = false;
  Algorithm algorithm = Algorithm::direct;
  DataType type = DataType::float32;
  OperatorKind kind = OperatorKind::sum;
  ReduceFunction reduce = nullptr;
  std::vector<PlanTrack> tracks;
  std::size_t scratch_bytes = 0;
  std::size_t most_operands = 1;
  bool brief = false;         // one track, and every message of it travels in one piece with its header
  bool single_copy = false;   // receivers copy straight from the senders' buffers, whatever the process
  bool fetches_ahead = true;  // longer messages at once: not over what is still to be sent
  Store for_others = Store::shared;  // how memory is stored that other ranks read
  StoreTuner* tuner = nullptr;       // who decides that for each run, if anyone
  std::size_t span_track = 0;        // whose rounds make the tuner's spans, up to span_rounds
  std::size_t span_rounds = SIZE_MAX;
  std::vector<Outlet*> settling;  // outlets that may have something under way at the end
  TcpLanes* tcp = nullptr;        // if any of its lanes is one of these
};

/// Bytes from the input's address to the output's in the in-place form.
std::ptrdiff_t in_place_bytes(const Shape& shape, DataType type);

/// Binds a schedule for shape.rank to the lanes. `shape.slice` is in elements of `type`. `tuner` must live as
/// long as the plan.
std::unique_ptr<Plan> make_plan(const Schedule& schedule, const Shape& shape, Algorithm algorithm,
                                DataType type, OperatorKind kind, Lanes& lanes, const StorePolicy& policy,
                                StoreTuner& tuner);

}  // namespace tutti
