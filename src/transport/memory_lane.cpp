// SPDX-License-Identifier: BSD-3-Clause
#include "transport/memory_lane.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace tutti {

const std::byte* WindowMap::address(int rank, std::uint64_t window, std::size_t offset) {
  auto& of_rank = mapped_[rank];
  auto found = of_rank.find(window);
  if (found == of_rank.end())
    found = of_rank.emplace(window, SharedMemory::attach(fetch_(rank, window), true)).first;
  if (offset >= found->second.size())
    fail(ncclInternalError, "rank {} names byte {} of a window of {}", rank, offset, found->second.size());
  return found->second.data() + offset;
}

// The sending end of a lane to one rank. Several outlets may use it: to this rank alone and to sets with it.
struct MemoryLanes::SendState {
  SendState(HostSegment& s, int from, int to, int number)
      : segment(s),
        source(from),
        destination(to),
        lane(number),
        tail(s.tail(from, to, number)),
        bell(s.board(to).bell, s.layout().crowded),
        depth(static_cast<std::uint64_t>(s.layout().depth)) {}

  HostSegment& segment;
  int source, destination, lane;
  Tail& tail;
  Doorbell bell;
  std::uint64_t depth;
  std::uint64_t sent = 0;
  std::uint64_t released = 0;  // as last seen: the receiver's line is read only when this is not enough
  std::uint64_t last_offer = 0;

  bool has_released(std::uint64_t sequence) {
    if (released >= sequence) return true;
    released = tail.released.load(std::memory_order_acquire);
    return released >= sequence;
  }
  bool has_room() { return sent < depth || has_released(sent + 1 - depth); }

  Descriptor& next() { return segment.descriptor(source, destination, lane, sent + 1); }
  void publish(Descriptor& descriptor, std::size_t bytes, MessageKind kind, const CallHeader& header) {
    descriptor.header = header;
    descriptor.bytes = static_cast<std::uint32_t>(bytes);
    descriptor.kind = kind;
    descriptor.sequence.store(++sent, std::memory_order_release);
    bell.ring();
  }
};

// The slots of messages to several ranks: a slot is free when all who were sent it have released it.
struct MemoryLanes::MulticastState {
  struct Reader {
    SendState* send;
    std::uint64_t sequence;
  };
  explicit MulticastState(int depth) : readers(static_cast<std::size_t>(depth)) {}
  std::vector<std::vector<Reader>> readers;  // by slot
  std::uint64_t sent = 0;

  std::vector<Reader>& next() { return readers[(sent + 1) % readers.size()]; }
  bool has_room() {
    auto& waiting = next();
    while (!waiting.empty() && waiting.back().send->has_released(waiting.back().sequence)) waiting.pop_back();
    return waiting.empty();
  }
};

class MemoryLanes::MemoryInlet final : public Inlet {
 public:
  MemoryInlet(MemoryLanes& lanes, int source, int lane)
      : lanes_(lanes),
        source_(source),
        lane_(lane),
        tail_(lanes.segment_->tail(source, lanes.rank_, lane)),
        bell_(lanes.segment_->board(source).bell, lanes.segment_->layout().crowded) {}

  bool peek(ArrivedMessage& message) override {
    const Descriptor& descriptor = lanes_.segment_->descriptor(source_, lanes_.rank_, lane_, released_ + 1);
    if (descriptor.sequence.load(std::memory_order_acquire) != released_ + 1) return false;
    message.bytes = descriptor.bytes;
    message.header = descriptor.header;
    message.data = locate(descriptor);
    return true;
  }

  void release() override {
    tail_.released.store(++released_, std::memory_order_release);
    bell_.ring();
  }

  int source() const override { return source_; }

 private:
  const void* locate(const Descriptor& descriptor) {
    switch (descriptor.kind) {
      case MessageKind::inlined:
        return descriptor.data;
      case MessageKind::slot:
        return lanes_.segment_->data() + descriptor.place;
      case MessageKind::address:
        return reinterpret_cast<const void*>(descriptor.place);
      case MessageKind::window:
        return lanes_.window_map_.address(source_, descriptor.window, descriptor.place);
    }
    fail(ncclInternalError, "rank {} sent a message of an unknown kind", source_);
  }

  MemoryLanes& lanes_;
  int source_;
  int lane_;
  Tail& tail_;
  Doorbell bell_;
  std::uint64_t released_ = 0;
};

class MemoryLanes::MemoryOutlet final : public Outlet {
 public:
  MemoryOutlet(MemoryLanes& lanes, std::vector<int> destinations, int lane)
      : lanes_(lanes), destinations_(std::move(destinations)), lane_(lane) {
    for (int destination : destinations_) {
      sends_.push_back(&lanes.send_state(destination, lane));
      all_in_process_ = all_in_process_ && lanes.same_process_[static_cast<std::size_t>(destination)];
      none_in_process_ = none_in_process_ && !lanes.same_process_[static_cast<std::size_t>(destination)];
    }
    if (sends_.size() > 1) multicast_ = lanes.multicasts_[static_cast<std::size_t>(lane)].get();
  }

  bool has_room() override {
    for (SendState* send : sends_)
      if (!send->has_room()) return false;
    return multicast_ == nullptr || multicast_->has_room();
  }

  std::byte* slot() override { return lanes_.segment_->data() + slot_offset(); }

  void commit(std::size_t bytes, const CallHeader& header) override {
    std::size_t place = slot_offset();
    auto* waiting = multicast_ == nullptr ? nullptr : &multicast_->next();
    if (multicast_ != nullptr) ++multicast_->sent;
    for (SendState* send : sends_) {
      if (waiting != nullptr) waiting->push_back({send, send->sent + 1});
      Descriptor& descriptor = send->next();
      descriptor.place = place;
      send->publish(descriptor, bytes, MessageKind::slot, header);
    }
  }

  void send_inline(const void* data, std::size_t bytes, const CallHeader& header) override {
    for (SendState* send : sends_) {
      Descriptor& descriptor = send->next();
      std::memcpy(descriptor.data, data, bytes);
      send->publish(descriptor, bytes, MessageKind::inlined, header);
    }
  }

  bool can_offer(const void* data, std::size_t bytes) override {
    if (all_in_process_) return true;
    return none_in_process_ && lanes_.windows_ && WindowTable::instance().find(data, bytes).has_value();
  }

  void offer(const void* data, std::size_t bytes, const CallHeader& header) override {
    WindowPlace place;
    if (!all_in_process_) place = WindowTable::instance().find(data, bytes).value();
    for (SendState* send : sends_) {
      Descriptor& descriptor = send->next();
      descriptor.place = all_in_process_ ? reinterpret_cast<std::uintptr_t>(data) : place.offset;
      descriptor.window = place.window;
      send->publish(descriptor, bytes, all_in_process_ ? MessageKind::address : MessageKind::window, header);
      send->last_offer = send->sent;
    }
  }

  bool has_settled() override {
    for (SendState* send : sends_)
      if (!send->has_released(send->last_offer)) return false;
    return true;
  }

  std::span<const int> destinations() const override { return destinations_; }

 private:
  std::size_t slot_offset() const {
    if (multicast_ != nullptr)
      return lanes_.segment_->multicast_offset(lanes_.rank_, lane_, multicast_->sent + 1);
    return lanes_.segment_->slot_offset(lanes_.rank_, destinations_[0], lane_, sends_[0]->sent + 1);
  }

  MemoryLanes& lanes_;
  std::vector<int> destinations_;
  int lane_;
  std::vector<SendState*> sends_;
  MulticastState* multicast_ = nullptr;
  bool all_in_process_ = true;
  bool none_in_process_ = true;
};

MemoryLanes::MemoryLanes(std::shared_ptr<HostSegment> segment, int rank, std::vector<bool> same_process,
                         bool windows, WindowMap::Fetch fetch)
    : segment_(std::move(segment)),
      rank_(rank),
      same_process_(std::move(same_process)),
      windows_(windows),
      window_map_(std::move(fetch)) {
  const SegmentLayout& layout = segment_->layout();
  auto ends = static_cast<std::size_t>(layout.ranks) * static_cast<std::size_t>(layout.lanes);
  sends_.resize(ends);
  inlets_.resize(ends);
  outlets_.resize(static_cast<std::size_t>(layout.lanes));
  for (int lane = 0; lane < layout.lanes; ++lane)
    multicasts_.push_back(std::make_unique<MulticastState>(layout.depth));
}

MemoryLanes::~MemoryLanes() = default;

std::size_t MemoryLanes::end_index(int peer, int lane) const {
  return static_cast<std::size_t>(peer) * static_cast<std::size_t>(segment_->layout().lanes) +
         static_cast<std::size_t>(lane);
}

MemoryLanes::SendState& MemoryLanes::send_state(int destination, int lane) {
  auto& state = sends_[end_index(destination, lane)];
  if (!state) state = std::make_unique<SendState>(*segment_, rank_, destination, lane);
  return *state;
}

Inlet& MemoryLanes::inlet(int source, int lane) {
  auto& end = inlets_[end_index(source, lane)];
  if (!end) end = std::make_unique<MemoryInlet>(*this, source, lane);
  return *end;
}

Outlet& MemoryLanes::outlet(const std::vector<int>& destinations, int lane) {
  auto& ends = outlets_[static_cast<std::size_t>(lane)];
  for (auto& end : ends)
    if (std::ranges::equal(end->destinations(), destinations)) return *end;
  ends.push_back(std::make_unique<MemoryOutlet>(*this, destinations, lane));
  return *ends.back();
}

}  // namespace tutti
