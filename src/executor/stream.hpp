// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/error.hpp"

namespace tutti {

/// An ordered queue of jobs with a thread of its own. A job that throws does not stop the ones behind it; the
/// first error is kept until synchronize() or the destructor.
class HostStream {
 public:
  HostStream();
  ~HostStream();  ///< waits for what is queued
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  void enqueue(std::function<void()> job);
  /// Blocks until all that was queued has run; throws the first error since the last call.
  void synchronize();
  /// ncclInProgress while jobs are left, else the first error's code or ncclSuccess.
  ncclResult_t query();
  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::size_t unfinished_ = 0;
  bool stopping_ = false;
  ncclResult_t error_ = ncclSuccess;
  std::string error_text_;
  std::thread thread_;
};

}  // namespace tutti
