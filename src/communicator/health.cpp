// SPDX-License-Identifier: BSD-3-Clause
#include "communicator/health.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace tutti {

void Health::fail(ncclResult_t code, const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (code_.load(std::memory_order_relaxed) != ncclSuccess) return;
  reason_ = reason;
  code_.store(code, std::memory_order_release);
  log_info("communicator broken: {}", reason);
  if (segment_) Doorbell(segment_->board(static_cast<int>(index_)).bell, segment_->layout().crowded).wake();
}

std::string Health::reason() const {
  std::lock_guard lock(mutex_);
  return reason_;
}

void Health::raise() const { throw Error(code(), reason()); }

void Health::attach(std::shared_ptr<HostSegment> segment, std::vector<int> members, std::size_t index) {
  std::lock_guard lock(mutex_);
  segment_ = std::move(segment);
  members_ = std::move(members);
  index_ = index;
}

void Health::note_left(int rank) {
  std::lock_guard lock(mutex_);
  left_.insert(rank);
}

bool Health::has_left(int rank) const {
  std::lock_guard lock(mutex_);
  auto member = std::ranges::lower_bound(members_, rank);
  if (member == members_.end() || *member != rank) return left_.contains(rank);
  return segment_->board(static_cast<int>(member - members_.begin())).status.left.load() != 0;
}

void Health::set_names(std::vector<std::string> names) {
  std::lock_guard lock(mutex_);
  names_ = std::move(names);
}

std::string Health::name(int rank) const {
  std::lock_guard lock(mutex_);
  auto index = static_cast<std::size_t>(rank);
  return index < names_.size() ? fmt::format("rank {} ({})", rank, names_[index])
                               : fmt::format("rank {}", rank);
}

}  // namespace tutti
