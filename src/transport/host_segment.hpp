// SPDX-License-Identifier: BSD-3-Clause
//
// The memory that the ranks of a communicator on one host share: for every pair and lane a ring of
// descriptors and slots, for every rank a doorbell and a notice board. One sparse file holds it all, whatever
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
  int depth = 8;              ///< messages under way per lane, a power of two, at least 2
  bool crowded = false;       ///< more ranks than cores
  bool one_process =
      false;  ///< all ranks are threads of one process: messages are read from the sender's buffers
};

/// The layout for so many ranks: deep lanes with long slices for few ranks, small ones for many, so that the
/// whole stays within some tens of MiB. `slice` 0: chosen.
SegmentLayout segment_layout(int ranks, int lanes, bool one_process, std::size_t slice);

enum class MessageKind : std::uint32_t { inlined, slot, address, window };

/// One message on a lane: a cache line. `sequence` is stored last (release) and loaded first (acquire).
struct alignas(64) Descriptor {
  std::atomic<std::uint64_t> sequence;  // of the message, from 1
  CallHeader header;
  std::uint32_t bytes;
  MessageKind kind;
  union {
    std::byte data[kInlineBytes];
    struct {
      std::uint64_t place;  // slot: offset in the segment; address: the address; window: offset in it
      std::uint64_t window;
    };
  };
};
static_assert(sizeof(Descriptor) == 64);

/// How far the receiver has come: messages released. On a line of its own.
struct alignas(64) Tail {
  std::atomic<std::uint64_t> released;
};

/// What a rank shows to the others: on lines of their own, written by that rank.
struct RankBoard {
  static constexpr int kCalls = 16;
  struct alignas(64) Bell {
    std::atomic<std::uint32_t> rings;     // the futex word
    std::atomic<std::uint32_t> sleeping;  // whether ringing is needed
  } bell;
  struct alignas(64) Status {
    std::atomic<std::uint32_t> left;  // the rank has finalized the communicator
  } status;
  /// The last collective calls, by operation number modulo kCalls, so that ranks who wait can see who called
  /// what.
  struct Call {
    std::atomic<std::uint64_t> call;
    std::atomic<std::uint64_t> count;
  };
  alignas(64) Call calls[kCalls];
};

class HostSegment {
 public:
  /// By the first of the ranks; the others attach, or share the object when they are in the same process.
  static std::shared_ptr<HostSegment> create(const SegmentLayout& layout);
  static std::shared_ptr<HostSegment> attach(const FileDescriptor& file, const SegmentLayout& layout);

  const SegmentLayout& layout() const { return layout_; }
  std::byte* data() const { return memory_.data(); }
  int descriptor() const { return memory_.descriptor(); }

  RankBoard& board(int rank) const;
  Tail& tail(int source, int destination, int lane) const;
  Descriptor& descriptor(int source, int destination, int lane, std::uint64_t sequence) const;
  /// Offset of the slot of a message to one rank, by its sequence number.
  std::size_t slot_offset(int source, int destination, int lane, std::uint64_t sequence) const;
  /// Offset of the slot of a message to several ranks.
  std::size_t multicast_offset(int source, int lane, std::uint64_t sequence) const;

 private:
  HostSegment(SharedMemory memory, const SegmentLayout& layout);
  std::size_t pair_lane(int source, int destination, int lane) const;

  SharedMemory memory_;
  SegmentLayout layout_;
  std::size_t lane_bytes_ = 0;
  std::size_t lanes_at_ = 0, slots_at_ = 0, multicasts_at_ = 0;
};

}  // namespace tutti
