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
  /// `processes`: ids of the ranks' processes; ranks of one process read each other's memory by address.
  /// `windows`: may use windows.
  MemoryLanes(std::shared_ptr<HostSegment> segment, int rank, std::vector<pid_t> processes, bool windows,
              WindowMap::Fetch fetch);
  ~MemoryLanes();

  const HostSegment& segment() const { return *segment_; }
  Doorbell doorbell(int rank) const { return {segment_->board(rank).bell, segment_->layout().crowded}; }

  /// Ends that live as long as this object; the same arguments give the same end.
  Inlet& inlet(int source, int lane);
  Outlet& outlet(const std::vector<int>& destinations, int lane);

 private:
  class MemoryInlet;
  class MemoryOutlet;
  struct SendState;
  struct SlotRing;
  std::size_t end_index(int peer, int lane) const;
  SendState& send_state(int destination, int lane);

  std::shared_ptr<HostSegment> segment_;
  int rank_;
  std::vector<pid_t> processes_;
  bool windows_;
  WindowMap window_map_;
  std::vector<std::unique_ptr<SendState>> sends_;                    // by destination and lane
  std::vector<std::unique_ptr<SlotRing>> multicasts_;                // by lane
  std::vector<std::unique_ptr<MemoryInlet>> inlets_;                 // by source and lane
  std::vector<std::vector<std::unique_ptr<MemoryOutlet>>> outlets_;  // by lane
};

}  // namespace tutti
