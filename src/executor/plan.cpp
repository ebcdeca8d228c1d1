// SPDX-License-Identifier: BSD-3-Clause
#include "executor/plan.hpp"

#include <algorithm>

namespace tutti {
namespace {

Range in_bytes(Range range, std::size_t element) {
  range.offset *= element;
  return range;
}

PlanStep bind(const Step& step, const Schedule& schedule, const Plan& plan, bool beyond_cache, Lanes& lanes) {
  std::size_t element = size_of(plan.type);
  PlanStep result{.in = in_bytes(step.in, element),
                  .out = in_bytes(step.out, element),
                  .landing = in_bytes(step.landing, element),
                  .count = step.count,
                  .inlets = {},
                  .finish = step.finish && plan.kind == OperatorKind::avg && plan.shape.ranks > 1};
  for (int peer : step.from) {
    result.inlets.push_back(&lanes.inlet(peer, step.from_lane));
    if (peer < plan.shape.rank) ++result.own_position;
  }
  if (!step.to.empty()) {
    result.outlet = &lanes.outlet(step.to, step.to_lane);
    result.most_inline = result.outlet->most_inline();
  }
  result.scale = plan.kind == OperatorKind::premul_sum && step.in.buffer == Buffer::input;
  result.operand_count = static_cast<int>(result.inlets.size()) + (step.in ? 1 : 0);
  result.answers = !step.to.empty() && step.to == step.from && step.out.buffer == Buffer::output;
  // In place, these store to lines that they, or the step before, have just read.
  bool over_what_was_read = plan.shape.in_place && (plan.shape.collective == Collective::all_to_all ||
                                                    (is_reducing(plan.shape.collective) && step.in));
  if (beyond_cache && !over_what_was_read) result.store = Store::streaming;
  result.is_copy = result.operand_count == 1 && !result.finish && !result.scale;
  result.is_placed = result.is_copy && !step.from.empty() && result.out;
  // What verify proved for stable sends; a scaled operand lies nowhere as it is sent.
  bool is_where_it_lies = !(is_local_copy(step) && result.scale);
  if (schedule.stable_sends && is_where_it_lies && result.outlet != nullptr)
    result.offered = in_bytes(place_of_message(step), element);
  return result;
}

bool leaves_host(const Step& step, const Lanes& lanes) {
  auto is_away = [&](int rank) { return !lanes.is_on_this_host(rank); };
  return std::ranges::any_of(step.from, is_away) || std::ranges::any_of(step.to, is_away);
}

// Shorter messages are stored alike, however often that is tried.
constexpr std::size_t kLeastTuned = 4096;

std::size_t most_bytes(const Shape& shape, DataType type) {
  return std::max(input_count(shape), output_count(shape)) * size_of(type);
}

// Of this rank, which may share memory.
std::size_t buffer_bytes(const Shape& shape, DataType type) {
  std::size_t in = input_count(shape);
  std::size_t out = output_count(shape);
  return (shape.in_place ? std::max(in, out) : in + out) * size_of(type);
}

// A track that only takes what others have stored may be far behind them, and then go on at once.
bool stores_for_others(const PlanTrack& track) {
  return std::ranges::any_of(track.steps, &PlanStep::answers);
}

// The rounds that all tracks have, which are as many on all ranks, on a track whose time is that of its
// stores.
void choose_spans(Plan& plan) {
  auto found = std::ranges::find_if(plan.tracks, stores_for_others);
  if (found != plan.tracks.end()) plan.span_track = static_cast<std::size_t>(found - plan.tracks.begin());
  for (const PlanTrack& track : plan.tracks) plan.span_rounds = std::min(plan.span_rounds, track.rounds);
}

}  // namespace

std::ptrdiff_t in_place_bytes(const Shape& shape, DataType type) {
  auto offset = static_cast<std::ptrdiff_t>(in_place_offset(shape) * size_of(type));
  return input_count(shape) > output_count(shape) ? offset : -offset;
}

std::unique_ptr<Plan> make_plan(const Schedule& schedule, const Shape& shape, Algorithm algorithm,
                                DataType type, OperatorKind kind, Lanes& lanes, const StorePolicy& policy,
                                StoreTuner& tuner) {
  auto plan = std::make_unique<Plan>();
  plan->shape = shape;
  plan->needs_input = input_count(shape) != 0;
  plan->needs_output = output_count(shape) != 0;
  plan->in_place_bytes = in_place_bytes(shape, type);
  plan->algorithm = algorithm;
  plan->type = type;
  plan->kind = kind;
  plan->reduce = reduce_function(type, kind);
  plan->fetches_ahead = !(shape.in_place && shape.collective == Collective::all_to_all);
  plan->scratch_bytes = schedule.scratch * size_of(type);
  if (policy.for_others)
    plan->for_others = *policy.for_others;
  else if (std::min(most_bytes(shape, type), shape.slice * size_of(type)) >= kLeastTuned)
    plan->tuner = &tuner;
  bool beyond_cache = buffer_bytes(shape, type) > policy.cached_bytes / static_cast<std::size_t>(shape.ranks);
  for (const Track& track : schedule.tracks) {
    PlanTrack bound;
    for (const Step& step : track) {
      if (step.count == 0) continue;
      bound.rounds = std::max(bound.rounds, (step.count + shape.slice - 1) / shape.slice);
      bound.steps.push_back(bind(step, schedule, *plan, beyond_cache, lanes));
      const PlanStep& last = bound.steps.back();
      plan->most_operands = std::max(plan->most_operands, static_cast<std::size_t>(last.operand_count));
      bool settles = last.outlet != nullptr && (last.offered || last.outlet->must_settle());
      if (settles && std::ranges::find(plan->settling, last.outlet) == plan->settling.end())
        plan->settling.push_back(last.outlet);
      if (leaves_host(step, lanes)) plan->tcp = lanes.tcp();
    }
    if (!bound.steps.empty()) plan->tracks.push_back(std::move(bound));
  }
  choose_spans(*plan);
  plan->brief = plan->tcp == nullptr && plan->tracks.size() == 1 && plan->tracks[0].rounds == 1 &&
                std::ranges::all_of(plan->tracks[0].steps, [&](const PlanStep& step) {
                  return step.count * size_of(type) <= step.most_inline;
                });
  return plan;
}

}  // namespace tutti
