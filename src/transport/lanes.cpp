// SPDX-License-Identifier: BSD-3-Clause
#include "transport/lanes.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tutti {

class Lanes::MixedOutlet final : public Outlet {
 public:
  MixedOutlet(std::vector<int> destinations, Outlet& here, Outlet& away)
      : destinations_(std::move(destinations)), here_(here), away_(away) {}

  bool has_room() override { return here_.has_room() && away_.has_room(); }
  bool has_slot() override { return here_.has_slot(); }
  std::byte* slot() override { return here_.slot(); }
  // The slot is free again when the ranks of this host have read it.
  void commit(std::size_t bytes, void* landing, const CallHeader& header) override {
    away_.send_inline(here_.slot(), bytes, header);
    here_.commit(bytes, landing, header);
  }
  std::size_t most_inline() const override { return std::min(here_.most_inline(), away_.most_inline()); }
  void send_inline(const void* data, std::size_t bytes, const CallHeader& header) override {
    away_.send_inline(data, bytes, header);
    here_.send_inline(data, bytes, header);
  }
  bool can_reach(const void* data, std::size_t bytes) const override {
    return here_.can_reach(data, bytes) && away_.can_reach(data, bytes);
  }
  void offer(const void* data, std::size_t bytes, void* landing, const CallHeader& header) override {
    away_.offer(data, bytes, landing, header);
    here_.offer(data, bytes, landing, header);
  }
  void send_placed(std::size_t, const CallHeader&) override {
    fail(ncclInternalError, "nothing is placed on another host");
  }
  bool has_settled() override { return here_.has_settled() && away_.has_settled(); }
  bool must_settle() const override { return true; }
  std::span<const int> destinations() const override { return destinations_; }

 private:
  std::vector<int> destinations_;
  Outlet& here_;
  Outlet& away_;
};

Lanes::Lanes(std::unique_ptr<MemoryLanes> memory, std::unique_ptr<TcpLanes> tcp)
    : memory_(std::move(memory)), tcp_(std::move(tcp)) {
  mixed_.resize(static_cast<std::size_t>(memory_->segment().layout().lanes));
}

Lanes::~Lanes() = default;

Inlet& Lanes::inlet(int source, int lane) {
  return is_on_this_host(source) ? memory_->inlet(source, lane) : tcp_->inlet(source, lane);
}

Outlet& Lanes::outlet(const std::vector<int>& destinations, int lane) {
  std::vector<int> here, away;
  for (int rank : destinations) (is_on_this_host(rank) ? here : away).push_back(rank);
  if (away.empty()) return memory_->outlet(destinations, lane);
  if (here.empty()) return tcp_->outlet(destinations, lane);
  auto& ends = mixed_[static_cast<std::size_t>(lane)];
  for (auto& end : ends)
    if (std::ranges::equal(end->destinations(), destinations)) return *end;
  ends.push_back(
      std::make_unique<MixedOutlet>(destinations, memory_->outlet(here, lane), tcp_->outlet(away, lane)));
  return *ends.back();
}

}  // namespace tutti
