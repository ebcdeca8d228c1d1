// SPDX-License-Identifier: BSD-3-Clause
#include "transport/memory_lane.hpp"

#include <algorithm>
#include <cstring>

#include "base/copy_few.hpp"
#include "base/error.hpp"
#include "memory/process_memory.hpp"

namespace tutti {

namespace {

// The line of a message to come, which its receiver still has from the round before: fetched while this one
// is under way, as many lines as this one has. So many units ahead, and not the next line or two, because the
// receiver polls those.
constexpr std::uint64_t kUnitsAhead = 8;
constexpr std::size_t kLine = 64;

// Up to here a message is sent by value to however many ranks.
constexpr std::size_t kLeastMostInline = 96;

void prefetch_to_write(const void* line) {
#if defined(__x86_64__)
  // __builtin_prefetch gives a plain read without -mprfchw. On processors without it this is a no-op.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace

std::byte* WindowMap::address(int rank, std::uint64_t window, std::size_t offset, std::size_t bytes) {
  auto& of_rank = mapped_[rank];
  auto found = of_rank.find(window);
  if (found == of_rank.end())
    found = of_rank.emplace(window, SharedMemory::attach(fetch_(rank, window), true)).first;
  std::size_t size = found->second.size();
  if (offset > size || bytes > size - offset)
    fail(ncclInternalError, "rank {} names {} bytes at {} of a window of {}", rank, bytes, offset, size);
  return found->second.data() + offset;
}

// Slots of one sender, used in turn: the one that was read longest ago is the one that other cores are
// likeliest to have let go of. A slot is free when all who were sent its message have released it. The turn
// starts with a few slots and grows when none of them is free: pages cost time when they are first used.
struct MemoryLanes::SlotRing {
  struct Reader {
    SendState* send;
    std::uint64_t sequence;
  };
  static constexpr std::size_t kFirst = 2;
  SlotRing(HostSegment& host_segment, std::size_t first_offset)
      : segment(host_segment),
        offset(first_offset),
        most(static_cast<std::size_t>(host_segment.layout().depth)) {}

  HostSegment& segment;
  std::size_t offset;
  std::size_t most;
  std::vector<std::vector<Reader>> readers;  // by slot
  std::size_t next = 0;

  bool is_free(std::size_t slot);
  bool has_free();
  std::size_t next_offset() const { return offset + next * segment.layout().slice; }
  std::vector<Reader>& take() {
    std::vector<Reader>& taken = readers[next];
    next = next + 1 < std::max(kFirst, readers.size()) ? next + 1 : 0;
    return taken;
  }
};

// The sending end of a lane to one rank. Several outlets may use it: to this rank alone and to sets with it.
struct MemoryLanes::SendState {
  SendState(HostSegment& segment, int source, int destination, int lane)
      : tail(segment.tail(source, destination, lane)),
        ring(segment.ring(source, destination, lane)),
        bell(segment.board(destination).bell, segment.layout().crowded),
        mask(static_cast<std::uint64_t>(segment.layout().units - 1)),
        most_ahead(mask - MessageHead::units_for(segment.layout().inlined)),
        slots(segment, segment.slots_offset(source, destination, lane)) {}

  Tail& tail;
  std::byte* ring;
  Doorbell bell;
  std::uint64_t mask;          // of units in the ring
  std::uint64_t most_ahead;    // units, so that the longest message and the head behind it have room
  std::uint64_t sent = 0;      // units; at the end of a message they are its number for has_released
  std::uint64_t released = 0;  // as last seen: the receiver's line is read only when this is not enough
  std::uint64_t last_offer = 0;
  SlotRing slots;

  bool has_released(std::uint64_t sequence) {
    if (released >= sequence) return true;
    released = tail.released.load(std::memory_order_acquire);
    return released >= sequence;
  }
  bool has_room() { return sent <= most_ahead || has_released(sent - most_ahead); }

  void send_inline(const void* data, std::size_t bytes, const CallHeader& header) {
    send(MessageKind::inlined, bytes, data, bytes, header);
  }
  void send_places(const MessagePlaces& places, MessageKind kind, std::size_t bytes,
                   const CallHeader& header) {
    send(kind, bytes, &places, sizeof places, header);
  }
  void send_placed(std::size_t bytes, const CallHeader& header) {
    send(MessageKind::placed, bytes, nullptr, 0, header);
  }

 private:
  // `content`: what stands in the ring.
  void send(MessageKind kind, std::size_t bytes, const void* content, std::size_t content_bytes,
            const CallHeader& header) {
    auto unit_at = [ring_start = ring, unit_mask = mask](std::uint64_t unit) {
      return ring_start + (unit & unit_mask) * MessageHead::kUnit;
    };
    std::uint64_t end = sent + MessageHead::units_for(content_bytes);
    auto& message = *reinterpret_cast<MessageHead*>(unit_at(sent));
    auto& to_come = *reinterpret_cast<MessageHead*>(unit_at(end));
    const std::byte* ahead = unit_at(end + kUnitsAhead);
    sent = end;
    copy_few(message.data(), content, content_bytes);
    message.header = header;
    to_come.state.store(0, std::memory_order_relaxed);
    message.state.store(MessageHead::state_of(kind, bytes), std::memory_order_release);
    for (std::size_t line = 0; line < content_bytes; line += kLine) prefetch_to_write(ahead + line);
    bell.ring();
  }
};

bool MemoryLanes::SlotRing::is_free(std::size_t slot) {
  std::vector<Reader>& waiting = readers[slot];
  while (!waiting.empty() && waiting.back().send->has_released(waiting.back().sequence)) waiting.pop_back();
  return waiting.empty();
}

bool MemoryLanes::SlotRing::has_free() {
  if (next < readers.size() && is_free(next)) return true;
  if (readers.size() == most) return false;
  next = readers.size();
  readers.emplace_back();
  segment.populate(next_offset(), segment.layout().slice);
  return true;
}

class MemoryLanes::MemoryInlet final : public Inlet {
 public:
  MemoryInlet(MemoryLanes& lanes, int source, int lane)
      : lanes_(lanes),
        source_(lanes.members_[static_cast<std::size_t>(source)]),
        tail_(lanes.segment_->tail(source, lanes.index_, lane)),
        ring_(lanes.segment_->ring(source, lanes.index_, lane)),
        mask_(static_cast<std::uint64_t>(lanes.segment_->layout().units - 1)),
        bell_(lanes.segment_->board(source).bell, lanes.segment_->layout().crowded) {}

  bool peek(ArrivedMessage& message, std::size_t, void*) override {
    const MessageHead& head = oldest();
    std::uint64_t state = head.state.load(std::memory_order_acquire);
    if (state == 0) return false;
    message.bytes = static_cast<std::uint32_t>(state);
    message.header = head.header;
    auto kind = static_cast<MessageKind>(state >> 32);
    if (kind == MessageKind::inlined) {
      message.data = head.data();
      peeked_units_ = MessageHead::units_for(message.bytes);
    } else if (kind == MessageKind::placed) {
      message.placed = true;
      peeked_units_ = MessageHead::units_for(0);
    } else {
      MessagePlaces places = places_in(head);
      if (kind == MessageKind::remote) message.bytes = left_ = message.bytes - fetched_;
      message.data = locate(kind, places.data, message.bytes);
      message.landing = reach(places.landing, message.bytes);
      peeked_units_ = MessageHead::units_for(sizeof places);
    }
    return true;
  }

  bool has_message() const override { return oldest().state.load(std::memory_order_relaxed) != 0; }

  std::size_t fetch(void* destination, std::size_t most) override {
    std::size_t bytes = std::min(most, left_);
    copy_from_process(source_.process, destination, places_in(oldest()).data.place + fetched_, bytes);
    fetched_ += bytes;
    left_ -= bytes;
    if (left_ == 0) fetched_ = 0;
    return bytes;
  }

  void release() override {
    if (left_ != 0) return;
    released_ += peeked_units_;
    tail_.released.store(released_, std::memory_order_release);
    bell_.ring();
  }

  int source() const override { return source_.rank; }

 private:
  const MessageHead& oldest() const {
    return *reinterpret_cast<const MessageHead*>(ring_ + (released_ & mask_) * MessageHead::kUnit);
  }
  static MessagePlaces places_in(const MessageHead& head) {
    MessagePlaces places;
    std::memcpy(&places, head.data(), sizeof places);
    return places;
  }
  const void* locate(MessageKind kind, const MemoryPlace& data, std::size_t bytes) {
    switch (kind) {
      case MessageKind::slot:
        return lanes_.segment_->data() + data.place;
      case MessageKind::memory:
        return reach(data, bytes);
      case MessageKind::remote:
        return nullptr;
      default:
        fail(ncclInternalError, "rank {} sent a message of an unknown kind", source_.rank);
    }
  }
  void* reach(const MemoryPlace& memory, std::size_t bytes) {
    if (memory.window == 0) return reinterpret_cast<void*>(memory.place);
    return lanes_.window_map_.address(source_.rank, memory.window, memory.place, bytes);
  }

  MemoryLanes& lanes_;
  Member source_;
  Tail& tail_;
  const std::byte* ring_;
  std::uint64_t mask_;
  Doorbell bell_;
  std::uint64_t released_ = 0;  // units
  std::uint64_t peeked_units_ = 0;
  std::size_t fetched_ = 0, left_ = 0;  // bytes of the peeked message, if it must be fetched
};

class MemoryLanes::MemoryOutlet final : public Outlet {
 public:
  MemoryOutlet(MemoryLanes& lanes, std::vector<int> destinations, int lane)
      : lanes_(lanes), destinations_(std::move(destinations)) {
    for (int destination : destinations_) {
      int index = lanes.index_of(destination);
      sends_.push_back(&lanes.send_state(index, lane));
      bool same = lanes.members_[static_cast<std::size_t>(index)].process ==
                  lanes.members_[static_cast<std::size_t>(lanes.index_)].process;
      all_in_process_ = all_in_process_ && same;
      none_in_process_ = none_in_process_ && !same;
    }
    // To several ranks, long messages are cheaper written once and read from there; unless they take turns on
    // the cores: then it counts that a ring has room for more of them than there are slots.
    const SegmentLayout& layout = lanes.segment_->layout();
    std::size_t shared = layout.crowded ? layout.inlined : layout.inlined / sends_.size();
    most_inline_ = std::min(layout.inlined, std::max(kLeastMostInline, shared));
    slots_ = sends_.size() == 1 ? &sends_[0]->slots : lanes.multicasts_[static_cast<std::size_t>(lane)].get();
  }

  bool has_room() override {
    for (SendState* send : sends_)
      if (!send->has_room()) return false;
    return true;
  }

  bool has_slot() override { return slots_->has_free(); }
  std::byte* slot() override { return lanes_.segment_->data() + slots_->next_offset(); }

  void commit(std::size_t bytes, void* landing, const CallHeader& header) override {
    MessagePlaces places{{slots_->next_offset(), 0}, reachable(landing, bytes).value_or(MemoryPlace{})};
    std::vector<SlotRing::Reader>& readers = slots_->take();
    for (SendState* send : sends_) {
      send->send_places(places, MessageKind::slot, bytes, header);
      readers.push_back({send, send->sent});
    }
  }

  std::size_t most_inline() const override { return most_inline_; }

  void send_inline(const void* data, std::size_t bytes, const CallHeader& header) override {
    for (SendState* send : sends_) send->send_inline(data, bytes, header);
  }

  bool can_reach(const void* data, std::size_t bytes) const override {
    return reachable(data, bytes).has_value();
  }

  void offer(const void* data, std::size_t bytes, void* landing, const CallHeader& header) override {
    auto place = reachable(data, bytes);
    MessagePlaces places{place.value_or(MemoryPlace{reinterpret_cast<std::uintptr_t>(data), 0}),
                         reachable(landing, bytes).value_or(MemoryPlace{})};
    for (SendState* send : sends_) {
      send->send_places(places, place ? MessageKind::memory : MessageKind::remote, bytes, header);
      send->last_offer = send->sent;
    }
  }

  void send_placed(std::size_t bytes, const CallHeader& header) override {
    for (SendState* send : sends_) send->send_placed(bytes, header);
  }

  bool has_settled() override {
    for (SendState* send : sends_)
      if (!send->has_released(send->last_offer)) return false;
    return true;
  }
  bool must_settle() const override { return false; }

  std::span<const int> destinations() const override { return destinations_; }

 private:
  // How all receivers can reach memory of this rank's, if they can: threads by its address, others if it lies
  // in a window.
  std::optional<MemoryPlace> reachable(const void* data, std::size_t bytes) const {
    if (data == nullptr) return std::nullopt;
    if (all_in_process_) return MemoryPlace{reinterpret_cast<std::uintptr_t>(data), 0};
    if (!none_in_process_ || !lanes_.windows_) return std::nullopt;
    auto found = WindowTable::instance().find(data, bytes);
    if (!found) return std::nullopt;
    return MemoryPlace{found->offset, found->window};
  }

  MemoryLanes& lanes_;
  std::vector<int> destinations_;
  std::vector<SendState*> sends_;
  SlotRing* slots_ = nullptr;
  std::size_t most_inline_ = 0;
  bool all_in_process_ = true;
  bool none_in_process_ = true;
};

MemoryLanes::MemoryLanes(std::shared_ptr<HostSegment> segment, int rank, std::vector<Member> members,
                         bool windows, WindowMap::Fetch fetch)
    : segment_(std::move(segment)),
      members_(std::move(members)),
      windows_(windows),
      window_map_(std::move(fetch)) {
  indices_.assign(static_cast<std::size_t>(members_.back().rank) + 1, -1);
  for (std::size_t i = 0; i < members_.size(); ++i)
    indices_[static_cast<std::size_t>(members_[i].rank)] = static_cast<int>(i);
  index_ = index_of(rank);
  const SegmentLayout& layout = segment_->layout();
  auto ends = static_cast<std::size_t>(layout.ranks) * static_cast<std::size_t>(layout.lanes);
  sends_.resize(ends);
  inlets_.resize(ends);
  outlets_.resize(static_cast<std::size_t>(layout.lanes));
  for (int lane = 0; lane < layout.lanes; ++lane)
    multicasts_.push_back(
        std::make_unique<SlotRing>(*segment_, segment_->multicast_slots_offset(index_, lane)));
}

MemoryLanes::~MemoryLanes() = default;

std::size_t MemoryLanes::end_index(int index, int lane) const {
  return static_cast<std::size_t>(index) * static_cast<std::size_t>(segment_->layout().lanes) +
         static_cast<std::size_t>(lane);
}

MemoryLanes::SendState& MemoryLanes::send_state(int index, int lane) {
  auto& state = sends_[end_index(index, lane)];
  if (!state) state = std::make_unique<SendState>(*segment_, index_, index, lane);
  return *state;
}

Inlet& MemoryLanes::inlet(int source, int lane) {
  auto& end = inlets_[end_index(index_of(source), lane)];
  if (!end) end = std::make_unique<MemoryInlet>(*this, index_of(source), lane);
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
