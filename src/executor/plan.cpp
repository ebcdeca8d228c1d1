// SPDX-License-Identifier: BSD-3-Clause
#include "executor/plan.hpp"

#include <algorithm>

namespace tutti {
namespace {

Range in_bytes(Range range, std::size_t element) {
  range.offset *= element;
  return range;
}

PlanStep bind(const Step& step, const Schedule& schedule, const Plan& plan, MemoryLanes& lanes) {
  std::size_t element = size_of(plan.type);
  PlanStep result{.in = in_bytes(step.in, element),
                  .out = in_bytes(step.out, element),
                  .count = step.count,
                  .inlets = {},
                  .finish = step.finish && plan.kind == OperatorKind::avg && plan.shape.ranks > 1};
  for (int peer : step.from) {
    result.inlets.push_back(&lanes.inlet(peer, step.from_lane));
    if (peer < plan.shape.rank) ++result.own_position;
  }
  if (!step.to.empty()) result.outlet = &lanes.outlet(step.to, step.to_lane);
  result.scale = plan.kind == OperatorKind::premul_sum && step.in.buffer == Buffer::input;
  // What verify proved for stable sends: results stored in the output, and plain sends of a buffer.
  bool plain_send = !step.out && step.from.empty() && step.in.buffer != Buffer::scratch && !result.scale;
  result.may_offer = schedule.stable_sends && (step.out.buffer == Buffer::output || plain_send);
  return result;
}

}  // namespace

std::unique_ptr<Plan> make_plan(const Schedule& schedule, const Shape& shape, Algorithm algorithm,
                                DataType type, OperatorKind kind, MemoryLanes& lanes,
                                const StorePolicy& policy) {
  auto plan = std::make_unique<Plan>();
  plan->shape = shape;
  plan->algorithm = algorithm;
  plan->type = type;
  plan->kind = kind;
  plan->reduce = reduce_function(type, kind);
  plan->scratch_bytes = schedule.scratch * size_of(type);
  plan->streaming =
      std::max(input_count(shape), output_count(shape)) * size_of(type) >= policy.streaming_from;
  for (const Track& track : schedule.tracks) {
    PlanTrack bound;
    for (const Step& step : track) {
      if (step.count == 0) continue;
      bound.rounds = std::max(bound.rounds, (step.count + shape.slice - 1) / shape.slice);
      bound.steps.push_back(bind(step, schedule, *plan, lanes));
      const PlanStep& last = bound.steps.back();
      plan->most_operands = std::max(plan->most_operands, static_cast<std::size_t>(last.operand_count()));
      if (last.may_offer && last.outlet != nullptr &&
          std::find(plan->offering.begin(), plan->offering.end(), last.outlet) == plan->offering.end())
        plan->offering.push_back(last.outlet);
    }
    if (!bound.steps.empty()) plan->tracks.push_back(std::move(bound));
  }
  return plan;
}

}  // namespace tutti
