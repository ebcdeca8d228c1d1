// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <deque>
#include <vector>

#include "model/memory.hpp"
#include "parallel/rank_group.hpp"

namespace trainer {

/// One end of a one-way connection of two ranks: of neighbouring pipeline stages, or of a worker and a
/// parameter server. The group of the two and the stream are this way's alone, so that no message waits for
/// one of another way. Messages arrive in the order in which they were sent.
class Link {
 public:
  struct MessageShape {
    Type type;
    Index count;
  };

  /// Both must outlive it; `group` has two ranks. `bell` rings for every message that is through.
  Link(RankGroup& group, Memory& memory, Bell bell = nullptr)
      : group_(group), memory_(memory), bell_(std::move(bell)) {}

  /// Returns at once; the array is given back when it is through.
  void send(Array array);
  /// From and to an array that stays until finish(). Return at once.
  void send(Type type, const void* data, Index count);
  void receive(Type type, void* data, Index count);
  /// These messages are to come, after those that were expected before. One is being received ahead of the
  /// one that is asked for.
  void expect(const std::vector<MessageShape>& messages);
  /// The next message. Blocks.
  Array receive();
  /// Whether receive() would not block.
  bool has_message() const { return !under_way_.empty() && under_way_.front().event->load(); }
  /// Blocks until all that was sent, or is received in place, is through.
  void finish();

 private:
  struct Message {
    Array array;
    Event event;
  };
  int peer() const { return 1 - group_.rank(); }
  void post_receive();

  RankGroup& group_;
  Memory& memory_;
  Bell bell_;
  std::deque<Message> under_way_;
  std::deque<MessageShape> expected_;
  Stream stream_;  // goes first, and ends what it does with the messages
};

}  // namespace trainer
