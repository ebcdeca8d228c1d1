// SPDX-License-Identifier: BSD-3-Clause
#include "executor/stream.hpp"

#include "base/thread.hpp"

namespace tutti {

HostStream::HostStream() : thread_(start_thread("tutti-stream", [this] { run(); })) {}

HostStream::~HostStream() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostStream::enqueue(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    ++unfinished_;
  }
  changed_.notify_all();
}

void HostStream::synchronize() {
  if (is_own_thread())
    fail(ncclInvalidUsage, "a stream's own callback cannot wait for the stream: it would wait for itself");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return unfinished_ == 0; });
  if (error_ == ncclSuccess) return;
  Error error(std::exchange(error_, ncclSuccess), error_text_);
  throw error;
}

ncclResult_t HostStream::query() {
  std::lock_guard lock(mutex_);
  return unfinished_ != 0 ? ncclInProgress : error_;
}

void HostStream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    ncclResult_t code = ncclSuccess;
    std::string text;
    try {
      job();
    } catch (const Error& error) {
      code = error.code();
      text = error.what();
    } catch (const std::exception& error) {
      code = ncclInternalError;
      text = error.what();
    }
    lock.lock();
    if (code != ncclSuccess && error_ == ncclSuccess) {
      error_ = code;
      error_text_ = text;
    }
    --unfinished_;
    changed_.notify_all();
  }
}

}  // namespace tutti
