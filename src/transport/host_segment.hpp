// SPDX-License-Identifier: BSD-3-Clause
//
// The memory that the ranks of a communicator on one host share: for every pair and lane a ring of
// messages and slots, for every rank a doorbell and a notice board. One sparse file holds it all, whatever
// the number of ranks; pages exist from when they are first used.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "memory/host_memory.hpp"
#include "transport/lane.hpp"

namespace tutti {

/// How a communicator's segment is cut; the same on all of its ranks.
struct SegmentLayout {
  int ranks = 1;
  int lanes = 1;
  std::size_t slice = 65536;  ///< bytes of a slot, a multiple of 64
  int units = 256;            ///< of a lane's ring, a power of two; see MessageHead
  std::size_t inlined = 512;  ///< most bytes of a message that lies in the ring itself
  int depth = 8;              ///< slots per lane, for the others
  bool crowded = false;       ///< more ranks than cores
};

/// The layout for so many ranks: deep lanes with long slices for few ranks, small ones for many, so that the
/// whole stays within some tens of MiB. `one_process`: messages are read from the sender's buffers. `slice`
/// 0: chosen.
SegmentLayout segment_layout(int ranks, int lanes, bool one_process, std::size_t slice);

/// The slice of a job on several hosts, of which the largest has so many ranks: the same on all, and long
/// enough that a message is worth its system calls.
std::size_t slice_between_hosts(int most_ranks, int lanes);

enum class MessageKind : std::uint32_t {
  none,  // not there yet
  inlined,
  slot,
  memory,  // of the sender's, which the receiver can reach
  remote,  // an address in the sender's process, from which the receiver copies
  placed,  // in the receiver's memory, where it asked for it
};

/// A message on a lane: so many units of the lane's ring, one after the other, that this and what follows
/// fit: its bytes if it is inlined, nothing if it is placed, else a MessagePlaces. Messages of a few bytes
/// share a cache line.
///
/// `state` is stored last (release) and loaded first (acquire). Before that the sender clears the state of
/// the message to come, so that whatever bytes lay there are not taken for one. A message may run over the
/// end of the ring into some units that are there for this.
struct MessageHead {
  static constexpr std::size_t kUnit = 32;
  std::atomic<std::uint64_t> state;  // kind and bytes; 0: no message
  CallHeader header;

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(this + 1); }
  static constexpr std::uint64_t state_of(MessageKind kind, std::size_t bytes) {
    return static_cast<std::uint64_t>(kind) << 32 | bytes;
  }
  static constexpr std::uint64_t units_for(std::size_t bytes);
};

/// Memory of the sender's: an address in its process, or, if `window` is not 0, an offset in that window.
struct MemoryPlace {
  std::uint64_t place;
  std::uint64_t window;
};

/// Where the bytes of a message are (of a slot, its offset in the segment), and where the answer belongs: all
/// zero if nowhere.
struct MessagePlaces {
  MemoryPlace data;
  MemoryPlace landing;
};

constexpr std::uint64_t MessageHead::units_for(std::size_t bytes) {
  return (sizeof(MessageHead) + bytes + kUnit - 1) / kUnit;
}

/// How far the receiver has come: units released. On a line of its own.
struct alignas(128) Tail {
  std::atomic<std::uint64_t> released;
};

/// What a rank shows to the others: on lines of their own, written by that rank.
struct RankBoard {
  static constexpr int kCalls = 16;
  struct alignas(64) Bell {
    std::atomic<std::uint32_t> rings;     // the futex word
    std::atomic<std::uint32_t> sleeping;  // whether ringing is needed, and how (SleepKind)
    std::atomic<std::uint32_t> socket;    // the sleeper's (see BellSocket), if it sleeps on one
    // Hints for ranks that share a core: as of when this one last found nothing to do.
    std::atomic<std::uint32_t> core;     // where it ran, plus 1; 0: not known
    std::atomic<std::uint32_t> waiting;  // whether it waits still
    std::atomic<std::uint32_t> news;     // whether it has been sent anything since
  } bell;
  struct alignas(64) Status {
    std::atomic<std::uint32_t> left;      // the rank has finalized the communicator
    std::atomic<std::uint32_t> reaching;  // a thread of this rank may be in the buffers of other ranks
  } status;
  /// The last collective calls, by operation number modulo kCalls, so that ranks who wait can see who called
  /// what. One thread puts; others get the two words of one call, or nothing while they are being changed.
  class Call {
   public:
    void put(const CallHeader& header) {
      call_.store(0, std::memory_order_relaxed);  // who sees the new count no longer sees the old call
      std::atomic_thread_fence(std::memory_order_release);
      count_.store(header.count, std::memory_order_relaxed);
      call_.store(header.call, std::memory_order_release);
    }
    std::optional<CallHeader> get() const {
      std::uint64_t call = call_.load(std::memory_order_acquire);
      std::uint64_t count = count_.load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (call == 0 || call_.load(std::memory_order_relaxed) != call) return std::nullopt;
      return CallHeader{call, count};
    }

   private:
    std::atomic<std::uint64_t> call_;
    std::atomic<std::uint64_t> count_;
  };
  alignas(64) Call calls[kCalls];
};

/// Of the communicator as a whole, on a line of its own.
struct alignas(64) CommonBoard {
  std::atomic<std::uint32_t> failed;  // some rank's operation has: nobody may go into others' buffers now
};

class HostSegment {
 public:
  /// By the first of the ranks; the others attach, or share the object when they are in the same process.
  static std::shared_ptr<HostSegment> create(const SegmentLayout& layout);
  static std::shared_ptr<HostSegment> attach(const FileDescriptor& file, const SegmentLayout& layout);

  const SegmentLayout& layout() const { return layout_; }
  std::byte* data() const { return memory_.data(); }
  int descriptor() const { return memory_.descriptor(); }

  CommonBoard& common() const { return *reinterpret_cast<CommonBoard*>(data()); }
  RankBoard& board(int rank) const {
    return reinterpret_cast<RankBoard*>(data() + sizeof(CommonBoard))[rank];
  }
  Tail& tail(int source, int destination, int lane) const;
  /// The lane's ring of `units` units and the few behind them.
  std::byte* ring(int source, int destination, int lane) const;
  /// Makes the pages of a part present for writing, in one call instead of a fault for each.
  void populate(std::size_t offset, std::size_t bytes) { memory_.populate(offset, bytes); }
  /// Offset of the first of the `depth` slots for messages to one rank.
  std::size_t slots_offset(int source, int destination, int lane) const;
  /// The same for messages to several ranks.
  std::size_t multicast_slots_offset(int source, int lane) const;

 private:
  HostSegment(SharedMemory memory, const SegmentLayout& layout);
  std::size_t pair_lane(int source, int destination, int lane) const;

  SharedMemory memory_;
  SegmentLayout layout_;
  std::size_t lane_bytes_ = 0;
  std::size_t lanes_at_ = 0, slots_at_ = 0, multicasts_at_ = 0;
};

}  // namespace tutti
