// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/stage_link.hpp"

namespace trainer {

void StageLink::send(Array array) {
  while (!under_way_.empty() && under_way_.front().event->load()) under_way_.pop_front();
  group_.send(type_, array.data(), array.count(), peer(), &stream_);
  under_way_.push_back({std::move(array), stream_.record()});
}

void StageLink::expect(Index messages, Index count) {
  expected_ = messages;
  count_ = count;
  post_receive();
}

void StageLink::post_receive() {
  if (expected_ == 0) return;
  --expected_;
  Array array(memory_, Use::Activations, type_, count_);
  group_.receive(type_, array.data(), count_, peer(), &stream_);
  under_way_.push_back({std::move(array), stream_.record()});
}

Array StageLink::receive() {
  Message message = std::move(under_way_.front());
  under_way_.pop_front();
  post_receive();
  group_.wait(stream_, message.event);
  return std::move(message.array);
}

void StageLink::finish() {
  group_.synchronize(stream_);
  under_way_.clear();
}

}  // namespace trainer
