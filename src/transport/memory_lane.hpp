// SPDX-License-Identifier: BSD-3-Clause
//
// Lanes through memory that both ranks can reach: the in_process transport (threads of one process: messages
// are read from the sender's buffers) and the shared_memory transport (processes of one host: messages go
// through slots, or are read in place from buffers of ncclMemAlloc).
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "transport/doorbell.hpp"
#include "transport/host_segment.hpp"
#include "transport/lane.hpp"

namespace tutti {

/// Where a peer's window is mapped here. Mapped on first use, by the function given (which asks the peer's
/// process for the descriptor), and until the communicator ends.
class WindowMap {
 public:
  using Fetch = std::function<FileDescriptor(int rank, std::uint64_t window)>;
  explicit WindowMap(Fetch fetch) : fetch_(std::move(fetch)) {}
  /// Blocks on first use of a window. Throws when it cannot be had.
  std::byte* address(int rank, std::uint64_t window, std::size_t offset, std::size_t bytes);

 private:
  Fetch fetch_;
  std::unordered_map<int, std::unordered_map<std::uint64_t, SharedMemory>> mapped_;
};

/// One rank's ends of all its lanes in a segment.
class MemoryLanes {
 public:
  /// A rank of this host and its process: ranks of one process read each other's memory by address.
  struct Member {
    int rank;
    pid_t process;
  };
  /// `members`: the ranks of the segment, ascending. `windows`: may use windows.
  MemoryLanes(std::shared_ptr<HostSegment> segment, int rank, std::vector<Member> members, bool windows,
              WindowMap::Fetch fetch);
  ~MemoryLanes();

  const HostSegment& segment() const { return *segment_; }
  const std::vector<Member>& members() const { return members_; }
  bool has(int rank) const { return index_of(rank) >= 0; }
  RankBoard& board(int rank) const { return segment_->board(index_of(rank)); }
  Doorbell doorbell(int rank) const { return {board(rank).bell, segment_->layout().crowded}; }

  /// Ends that live as long as this object; the same arguments give the same end.
  Inlet& inlet(int source, int lane);
  Outlet& outlet(const std::vector<int>& destinations, int lane);

 private:
  class MemoryInlet;
  class MemoryOutlet;
  struct SendState;
  struct SlotRing;
  /// A rank's number in the segment, or -1.
  int index_of(int rank) const {
    auto at = static_cast<std::size_t>(rank);
    return at < indices_.size() ? indices_[at] : -1;
  }
  std::size_t end_index(int index, int lane) const;
  SendState& send_state(int index, int lane);

  std::shared_ptr<HostSegment> segment_;
  std::vector<Member> members_;
  std::vector<int> indices_;  // by rank
  int index_ = 0;             // of this rank
  bool windows_;
  WindowMap window_map_;
  std::vector<std::unique_ptr<SendState>> sends_;                    // by destination and lane
  std::vector<std::unique_ptr<SlotRing>> multicasts_;                // by lane
  std::vector<std::unique_ptr<MemoryInlet>> inlets_;                 // by source and lane
  std::vector<std::vector<std::unique_ptr<MemoryOutlet>>> outlets_;  // by lane
};

}  // namespace tutti
