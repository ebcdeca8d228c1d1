// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <deque>

#include "model/memory.hpp"
#include "parallel/rank_group.hpp"

namespace trainer {

/// One rank's end of the way to or from a neighbouring pipeline stage. The group of the two and the stream
/// are this way's alone, so that no message waits for one of another way. Messages arrive in the order in
/// which they were sent.
class StageLink {
 public:
  /// Both must outlive it; `group` has two ranks.
  StageLink(RankGroup& group, Memory& memory, Type type) : group_(group), memory_(memory), type_(type) {}

  /// Returns at once; the array is given back when it is through.
  void send(Array array);
  /// So many messages, of `count` numbers each, are to come. The first is being received from now on, and
  /// each next one from when the one before is asked for.
  void expect(Index messages, Index count);
  /// The next message. Blocks.
  Array receive();
  /// Blocks until all that was sent is through.
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
  Type type_;
  Stream stream_;
  std::deque<Message> under_way_;
  Index expected_ = 0, count_ = 0;
};

}  // namespace trainer
