// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/link.hpp"

namespace trainer {

void Link::send(Array array) {
  while (has_message()) under_way_.pop_front();
  group_.send(array.type(), array.data(), array.count(), peer(), &stream_);
  under_way_.push_back({std::move(array), stream_.record(bell_)});
}

void Link::send(Type type, const void* data, Index count) {
  group_.send(type, data, count, peer(), &stream_);
}

void Link::receive(Type type, void* data, Index count) {
  group_.receive(type, data, count, peer(), &stream_);
}

void Link::expect(const std::vector<MessageShape>& messages) {
  expected_.insert(expected_.end(), messages.begin(), messages.end());
  if (under_way_.empty()) post_receive();
}

void Link::post_receive() {
  if (expected_.empty()) return;
  const auto [type, count] = expected_.front();
  expected_.pop_front();
  Array array(memory_, Use::Activations, type, count);
  group_.receive(type, array.data(), count, peer(), &stream_);
  under_way_.push_back({std::move(array), stream_.record(bell_)});
}

Array Link::receive() {
  Message message = std::move(under_way_.front());
  under_way_.pop_front();
  post_receive();
  group_.wait(stream_, message.event);
  return std::move(message.array);
}

void Link::finish() {
  group_.synchronize(stream_);
  under_way_.clear();
}

}  // namespace trainer
