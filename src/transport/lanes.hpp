// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <memory>
#include <vector>

#include "transport/memory_lane.hpp"
#include "transport/tcp_lane.hpp"

namespace tutti {

/// One rank's ends of all its lanes, each by the best transport there is to the rank at its other end:
/// through memory to ranks of the same host, by TCP to the others. What goes to both at once is written into
/// shared memory and sent from there.
class Lanes {
 public:
  /// `tcp` is null if all ranks are on this host.
  Lanes(std::unique_ptr<MemoryLanes> memory, std::unique_ptr<TcpLanes> tcp);
  ~Lanes();

  /// Ends that live as long as this object; the same arguments give the same end.
  Inlet& inlet(int source, int lane);
  Outlet& outlet(const std::vector<int>& destinations, int lane);

  const MemoryLanes& memory() const { return *memory_; }
  bool is_on_this_host(int rank) const { return memory_->has(rank); }
  /// Null if all ranks are on this host.
  TcpLanes* tcp() { return tcp_.get(); }
  const TcpLanes* tcp() const { return tcp_.get(); }

 private:
  class MixedOutlet;
  std::unique_ptr<MemoryLanes> memory_;
  std::unique_ptr<TcpLanes> tcp_;
  std::vector<std::vector<std::unique_ptr<MixedOutlet>>> mixed_;  // by lane
};

}  // namespace tutti
