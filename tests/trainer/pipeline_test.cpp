// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "parallel/pipeline_schedule.hpp"
#include "support/catch.hpp"

namespace {

using namespace trainer;
using Actions = std::vector<PipelineAction>;

// What a schedule does when a forward pass through a chunk takes 1, a backward pass 2, and messages nothing.
struct Outcome {
  double end = 0;                  // 0: the stages wait for each other for ever
  double share = 0;                // of the time of all stages in which they are idle
  std::vector<Index> peak_stored;  // of each stage
};

Outcome simulate(const PipelineShape& shape, Index micro_batches) {
  const int stages = shape.stages, parts = stages * shape.chunks;
  std::vector<Actions> left;
  for (int s = 0; s < stages; ++s) left.push_back(training_actions(shape, s, micro_batches));
  std::map<std::tuple<bool, Index, int>, double> finished;  // backward, micro-batch, part of the model
  std::vector<double> now(static_cast<std::size_t>(stages));
  std::vector<std::size_t> next(static_cast<std::size_t>(stages));
  Outcome outcome;
  double busy = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < left.size(); ++s) {
      if (next[s] == left[s].size()) continue;
      const PipelineAction& action = left[s][next[s]];
      const int part = action.chunk * stages + static_cast<int>(s);
      double ready = 0;
      auto need = [&](bool backward, int of_part) {
        auto found = finished.find({backward, action.micro_batch, of_part});
        ready = found == finished.end() ? -1 : std::max(ready, found->second);
        return found != finished.end();
      };
      if (!action.backward && part > 0 && !need(false, part - 1)) continue;
      if (action.backward && !need(false, part)) continue;
      if (action.backward && part + 1 < parts && !need(true, part + 1)) continue;
      const double takes = action.backward ? 2 : 1;
      now[s] = std::max(now[s], ready) + takes;
      busy += takes;
      finished[{action.backward, action.micro_batch, part}] = now[s];
      ++next[s];
      moved = true;
    }
  }
  for (std::size_t s = 0; s < left.size(); ++s) {
    if (next[s] < left[s].size()) return {};
    Index stored = 0, peak = 0;
    for (const PipelineAction& action : left[s]) peak = std::max(peak, stored += action.backward ? -1 : 1);
    outcome.peak_stored.push_back(peak);
    outcome.end = std::max(outcome.end, now[s]);
  }
  outcome.share = 1 - busy / (stages * outcome.end);
  return outcome;
}

std::vector<PipelineShape> all_shapes() {
  std::vector<PipelineShape> shapes;
  for (int stages : {1, 2, 3, 4, 5, 8}) {
    shapes.push_back({PipelineSchedule::GPipe, stages, 1});
    shapes.push_back({PipelineSchedule::OneForwardOneBackward, stages, 1});
    for (int chunks : {2, 3, 4})
      if (stages > 1) shapes.push_back({PipelineSchedule::Interleaved, stages, chunks});
  }
  return shapes;
}

// The messages of one direction that a stage sends to the next one or gets from the one before, in order.
std::vector<std::pair<Index, int>> messages(const PipelineShape& shape, const Actions& actions, bool backward,
                                            int sender, bool sends) {
  const int parts = shape.stages * shape.chunks;
  std::vector<std::pair<Index, int>> result;
  for (const PipelineAction& action : actions) {
    if (action.backward != backward) continue;
    // Named by the part of the model that makes them.
    const int step = backward ? -1 : 1,
              stage = sends ? sender : (sender + step + shape.stages) % shape.stages;
    const int part = action.chunk * shape.stages + stage, maker = sends ? part : part - step;
    if (maker < 0 || maker >= parts || maker + step < 0 || maker + step >= parts) continue;
    result.emplace_back(action.micro_batch, maker);
  }
  return result;
}

}  // namespace

TEST_CASE("every stage makes every pass once, and no stages wait for each other for ever") {
  for (const PipelineShape& shape : all_shapes())
    for (Index rounds : {1, 2, 3, 7}) {
      const Index micro_batches = rounds * (shape.chunks > 1 ? shape.stages : 1);
      CAPTURE(name_of(shape.schedule), shape.stages, shape.chunks, micro_batches);
      for (int s = 0; s < shape.stages; ++s) {
        Actions actions = training_actions(shape, s, micro_batches);
        CHECK(actions.size() == static_cast<std::size_t>(2 * micro_batches * shape.chunks));
        for (Index m = 0; m < micro_batches; ++m)
          for (int chunk = 0; chunk < shape.chunks; ++chunk)
            for (bool backward : {false, true})
              CHECK(std::count(actions.begin(), actions.end(), PipelineAction{backward, m, chunk}) == 1);
      }
      CHECK(simulate(shape, micro_batches).end > 0);
    }
}

TEST_CASE("messages of a link are received in the order in which they are sent") {
  for (const PipelineShape& shape : all_shapes()) {
    if (shape.stages == 1) continue;
    const Index micro_batches = 3 * shape.stages;
    CAPTURE(name_of(shape.schedule), shape.stages, shape.chunks);
    for (int sender = 0; sender < shape.stages; ++sender)
      for (bool backward : {false, true}) {
        const int receiver = (sender + (backward ? -1 : 1) + shape.stages) % shape.stages;
        CHECK(messages(shape, training_actions(shape, sender, micro_batches), backward, sender, true) ==
              messages(shape, training_actions(shape, receiver, micro_batches), backward, sender, false));
      }
    // Evaluation may end within a group.
    for (Index count : {Index{1}, micro_batches + 1})
      for (int sender = 0; sender < shape.stages; ++sender)
        CHECK(messages(shape, forward_actions(shape, count), false, sender, true) ==
              messages(shape, forward_actions(shape, count), false, sender, false));
  }
}

TEST_CASE("the bubble is that of the formula") {
  for (const PipelineShape& shape : all_shapes())
    for (Index rounds : {1, 2, 5}) {
      const Index micro_batches = rounds * shape.stages;
      CAPTURE(name_of(shape.schedule), shape.stages, shape.chunks, micro_batches);
      CHECK(std::abs(simulate(shape, micro_batches).share - bubble_share(shape, micro_batches)) < 1e-12);
    }
}

TEST_CASE("gpipe stores all micro-batches, 1f1b as many as there are stages from there on") {
  for (int stages : {2, 4, 8}) {
    const Index micro_batches = 3 * stages;
    Outcome gpipe = simulate({PipelineSchedule::GPipe, stages, 1}, micro_batches);
    Outcome alternating = simulate({PipelineSchedule::OneForwardOneBackward, stages, 1}, micro_batches);
    for (int s = 0; s < stages; ++s) {
      CHECK(gpipe.peak_stored[static_cast<std::size_t>(s)] == micro_batches);
      CHECK(alternating.peak_stored[static_cast<std::size_t>(s)] == stages - s);
    }
  }
}

TEST_CASE("blocks are shared out as evenly as can be") {
  for (Index blocks : {1, 7, 8, 12})
    for (int parts = 1; parts <= blocks; ++parts) {
      Index next = 0;
      for (int part = 0; part < parts; ++part) {
        BlockRange range = blocks_of_part(blocks, parts, part);
        CHECK(range.first == next);
        CHECK((range.count == blocks / parts || range.count == blocks / parts + 1));
        next += range.count;
      }
      CHECK(next == blocks);
    }
}
