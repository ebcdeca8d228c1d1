// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "transport/doorbell.hpp"

namespace tutti {

/// What broke a communicator, if anything has. Set once, by whoever notices first; looked at by everyone who
/// waits. Thread-safe.
class Health {
 public:
  /// Later failures than the first are ignored. Wakes the rank if it sleeps.
  void fail(ncclResult_t code, const std::string& reason);
  bool is_broken() const { return code_.load(std::memory_order_acquire) != ncclSuccess; }
  ncclResult_t code() const { return code_.load(std::memory_order_acquire); }
  std::string reason() const;
  /// Throws the failure.
  void check() const {
    if (is_broken()) raise();
  }
  /// From when on fail() rings the rank's bell, which lies in `segment` as that of `members[index]`.
  void attach(std::shared_ptr<HostSegment> segment, std::vector<int> members, std::size_t index);

  /// A rank of another host has left in good order.
  void note_left(int rank);
  /// Whether the rank has, as far as is known.
  bool has_left(int rank) const;

  /// Who the ranks are ("pid 12 on host"), once that is known.
  void set_names(std::vector<std::string> names);
  /// "rank 3 (pid 12 on host)".
  std::string name(int rank) const;

 private:
  [[noreturn]] void raise() const;
  std::atomic<ncclResult_t> code_{ncclSuccess};
  mutable std::mutex mutex_;
  std::string reason_;
  std::shared_ptr<HostSegment> segment_;
  std::vector<int> members_;  // of the segment
  std::size_t index_ = 0;
  std::set<int> left_;
  std::vector<std::string> names_;
};

}  // namespace tutti
