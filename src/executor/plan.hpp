// SPDX-License-Identifier: BSD-3-Clause
//
// src/executor: where schedules meet lanes. A Plan is a schedule bound to a communicator's lanes and an
// element type; an Execution runs one on buffers; drive() makes progress on several at once and sleeps when
// there is none.
#pragma once
#include <memory>
#include <vector>

#include "algorithms/schedule.hpp"
#include "reduce/kernels.hpp"
#include "reduce/types.hpp"
#include "transport/memory_lane.hpp"

namespace tutti {

/// A step with its lanes looked up and its offsets in bytes.
struct PlanStep {
  Range in, out;  // offsets in bytes
  std::size_t count = 0;
  std::vector<Inlet*> inlets;
  int own_position = 0;  // of the local operand among all, in ascending order of rank
  Outlet* outlet = nullptr;
  bool finish = false;
  bool scale = false;      // the local operand is input of a premul_sum
  bool may_offer = false;  // what is sent stays as it is until it has been read

  int operand_count() const { return static_cast<int>(inlets.size()) + (in ? 1 : 0); }
};

struct PlanTrack {
  std::vector<PlanStep> steps;
  std::size_t rounds = 0;
};

/// Immutable once made; one Plan may be executed again and again, but by one Execution at a time.
struct Plan {
  Shape shape;
  Algorithm algorithm = Algorithm::direct;
  DataType type = DataType::float32;
  OperatorKind kind = OperatorKind::sum;
  ReduceFunction reduce = nullptr;
  std::vector<PlanTrack> tracks;
  std::size_t scratch_bytes = 0;
  std::size_t most_operands = 1;
  bool streaming = false;         // stores of this plan bypass the cache
  std::vector<Outlet*> offering;  // outlets that may have offers under way at the end
};

/// When stores bypass the cache: for operations of at least so many bytes per rank (SIZE_MAX: never).
struct StorePolicy {
  std::size_t streaming_from = SIZE_MAX;
};

/// Binds a schedule for shape.rank to the lanes. `shape.slice` is in elements of `type`.
std::unique_ptr<Plan> make_plan(const Schedule& schedule, const Shape& shape, Algorithm algorithm,
                                DataType type, OperatorKind kind, MemoryLanes& lanes,
                                const StorePolicy& policy);

}  // namespace tutti
