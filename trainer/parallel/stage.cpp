// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/stage.hpp"

#include <algorithm>

namespace trainer {

Stage::Stage(const PipelineShape& shape, std::vector<std::unique_ptr<Chunk>> chunks, Grid& grid,
             Memory& memory, Timeline& timeline)
    : shape_(shape), stage_(grid.pipeline.rank()), chunks_(std::move(chunks)), timeline_(timeline) {
  auto link = [&](std::optional<Link>& place, RankGroup& pair) {
    if (pair.size() == 2) place.emplace(pair, memory);
  };
  link(activations_in_, grid.activations_in);
  link(activations_out_, grid.activations_out);
  link(gradients_in_, grid.gradients_in);
  link(gradients_out_, grid.gradients_out);
}

std::vector<double> Stage::train(const Work& work, float loss_scale) {
  return run(work, training_actions(shape_, stage_, work.count), loss_scale);
}

std::vector<double> Stage::evaluate(const Work& work) {
  return run(work, forward_actions(shape_, work.count), 1.0F);
}

std::vector<double> Stage::run(const Work& work, const std::vector<PipelineAction>& actions,
                               float loss_scale) {
  Pass pass = work.pass(work.batch(0));
  expect_messages(actions, {pass.type(), pass.own_tokens() * pass.shape.width});
  std::vector<double> losses(static_cast<std::size_t>(work.count));
  for (const PipelineAction& action : actions)
    if (action.backward)
      backward(work, action);
    else
      forward(work, action, loss_scale, losses[static_cast<std::size_t>(action.micro_batch)]);
  if (activations_out_) activations_out_->finish();
  if (gradients_out_) gradients_out_->finish();
  return losses;
}

void Stage::expect_messages(const std::vector<PipelineAction>& actions, Link::MessageShape shape) {
  auto expect = [&](std::optional<Link>& link, bool backward, auto starts_here) {
    if (!link) return;
    const auto messages = std::count_if(actions.begin(), actions.end(), [&](const PipelineAction& action) {
      return action.backward == backward && !starts_here(action.chunk);
    });
    link->expect(std::vector(static_cast<std::size_t>(messages), shape));
  };
  expect(activations_in_, false, [&](int chunk) { return is_first(chunk); });
  expect(gradients_in_, true, [&](int chunk) { return is_last(chunk); });
}

void Stage::forward(const Work& work, const PipelineAction& action, float loss_scale, double& loss) {
  const MicroBatch batch = work.batch(action.micro_batch);
  const Pass pass = work.pass(batch);
  Array input = is_first(action.chunk) ? Array() : activations_in_->receive();
  Array output = timeline_.during(pass.training ? Activity::Forward : Activity::Evaluate, "",
                                  action.micro_batch, action.chunk, [&] {
                                    return chunks_[static_cast<std::size_t>(action.chunk)]->forward(
                                        pass, batch, std::move(input), loss_scale, loss);
                                  });
  if (!is_last(action.chunk)) activations_out_->send(std::move(output));
  if (pass.training) peak_stored_ = std::max(peak_stored_, ++stored_);
}

void Stage::backward(const Work& work, const PipelineAction& action) {
  const MicroBatch batch = work.batch(action.micro_batch);
  const Pass pass = work.pass(batch);
  Array d_output = is_last(action.chunk) ? Array() : gradients_in_->receive();
  Array d_input = timeline_.during(Activity::Backward, "", action.micro_batch, action.chunk, [&] {
    return chunks_[static_cast<std::size_t>(action.chunk)]->backward(pass, batch, std::move(d_output),
                                                                     action.micro_batch + 1 == work.count);
  });
  if (!is_first(action.chunk)) gradients_out_->send(std::move(d_input));
  --stored_;
}

}  // namespace trainer
