// SPDX-License-Identifier: BSD-3-Clause
#include "app/roles.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/stop.hpp"

namespace trainer {

namespace {

constexpr Index kHeldOutSamples = 32;

std::vector<const RankGroup*> pointers_to(const std::vector<RankGroup>& groups) {
  std::vector<const RankGroup*> pointers;
  for (const RankGroup& group : groups) pointers.push_back(&group);
  return pointers;
}

// All that a worker sends through.
std::vector<const RankGroup*> groups_of(const Grid& grid, const ServedWorld* served) {
  std::vector<const RankGroup*> groups = {&grid.tensor,          &grid.data,         &grid.data_gather,
                                          &grid.pipeline,        &grid.ends,         &grid.activations_in,
                                          &grid.activations_out, &grid.gradients_in, &grid.gradients_out};
  if (served != nullptr)
    for (const std::vector<RankGroup>* ways : {&served->gradients, &served->weights})
      for (const RankGroup* way : pointers_to(*ways)) groups.push_back(way);
  return groups;
}

std::vector<const RankGroup*> groups_of(const ServedWorld& served) {
  std::vector<const RankGroup*> groups = pointers_to(served.gradients);
  for (const RankGroup* way : pointers_to(served.weights)) groups.push_back(way);
  return groups;
}

}  // namespace

// A trace has all steps, a report the last one; where ranks do not keep step, it needs some before.
void Role::begin_step() {
  constexpr std::size_t kMostSpans = 100000;
  const bool in_step = options_.server_mode != ServerMode::Asynchronous;
  meter_.begin(options_.trace.empty() && (in_step || timeline_.spans().size() > kMostSpans));
}

std::vector<Measurement> Role::measurements() {
  const Measurement own = meter_.measurement(name(), memory(), options_, place());
  const Window window =
      options_.server_mode == ServerMode::Asynchronous ? Window::FullSwing : Window::LastStep;
  return gather_measurements(job(), own, meter_, timeline_, window, !place().serves);
}

WorkerRole::WorkerRole(const Options& options, Worker& worker, ServedWorld* served, Progress* progress)
    : Role(options, groups_of(worker.grid(), served), worker.timeline()),
      worker_(worker),
      served_(served),
      progress_(progress) {}

std::string WorkerRole::name() const {
  const Grid& grid = worker_.grid();
  std::vector<std::string> places;
  for (auto [name, group] :
       {std::pair("data", &grid.data), {"tensor", &grid.tensor}, {"stage", &grid.pipeline}})
    if (group->size() > 1) places.push_back(fmt::format("{} {}", name, group->rank()));
  return places.empty() ? "alone" : fmt::format("{}", fmt::join(places, ", "));
}

void WorkerRole::step(Index step) {
  begin_step();
  const Worker::StepResult result = worker_.step(step);
  meter_.end();
  if (progress_ != nullptr) progress_->step(step, result);
}

void WorkerRole::evaluate(Index step) {
  const double loss = worker_.held_out_loss(kHeldOutSamples);
  if (progress_ != nullptr) progress_->held_out(step, loss);
}

void WorkerRole::saved(Index steps, const std::string& trouble) {
  if (progress_ != nullptr) progress_->saved(steps, trouble);
}

void WorkerRole::stopped(Index steps, const char* by) {
  if (progress_ != nullptr) progress_->stopped(steps, by);
}

Index WorkerRole::run_alone(Index first_step) {
  Index step = first_step;
  while (step < options_.steps && !stops()) this->step(step++);
  worker_.finish();
  double updates = 0, steps = -static_cast<double>(step);
  job().all_reduce(&updates, 1, ncclMax);
  job().all_reduce(&steps, 1, ncclMax);
  worker_.set_updates(static_cast<Index>(updates));
  ParameterServer::Staleness staleness{};
  job().all_reduce(staleness.data(), static_cast<Index>(staleness.size()));
  if (progress_ != nullptr) progress_->staleness(staleness);
  return -static_cast<Index>(steps);
}

ServerRole::ServerRole(const Options& options, ServedWorld& served, ParameterServer& server,
                       Timeline& timeline)
    : Role(options, groups_of(served), timeline), served_(served), server_(server) {}

void ServerRole::step(Index step) {
  begin_step();
  server_.step(step);
  meter_.end();
}

std::string ServerRole::save(const CheckpointWriter& writer, Index steps) {
  return writer.write(job(), checkpoint_info(options_, steps, server_.updates()),
                      [&](StateKind kind, const CheckpointWriter::Emit& emit) {
                        server_.states().for_each_owned_run(
                            [&](const ModelStates::Owned& owned, Index number, Index place, Index length) {
                              emit(number, owned.state(kind) + place, length);
                            });
                      });
}

Index ServerRole::run_alone(Index first_step) {
  begin_step();
  server_.serve();
  double updates = static_cast<double>(server_.updates()), steps = -static_cast<double>(options_.steps);
  job().all_reduce(&updates, 1, ncclMax);
  job().all_reduce(&steps, 1, ncclMax);
  meter_.end(-static_cast<Index>(steps) - first_step);
  ParameterServer::Staleness staleness = server_.staleness();
  job().all_reduce(staleness.data(), static_cast<Index>(staleness.size()));
  return -static_cast<Index>(steps);
}

}  // namespace trainer
