// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "communicator/batch.hpp"
#include "executor/stream.hpp"

namespace tutti {

/// What a thread has called between ncclGroupStart and the outermost ncclGroupEnd.
class Group {
 public:
  static Group& of_this_thread();

  void start() { ++depth_; }
  /// Of this thread's group; does not make one.
  static bool is_open() { return depth_ > 0; }
  /// A call inside the group failed: the end will start nothing and give this error.
  void note_error(const Error& error);
  void add(std::shared_ptr<Communicator> communicator, HostStream* stream, const Operation& operation);
  /// Something that blocks for other ranks (a join, a split); those of a group run side by side, before
  /// operations.
  void add_job(std::function<void()> job) { jobs_.push_back(std::move(job)); }
  /// Throws the first error of anything in the group. Blocks for jobs and for operations without a stream.
  void end();

 private:
  struct Entry {
    Launch launch;
    HostStream* stream = nullptr;
  };
  void check_sends_to_self(const Launch& launch) const;
  void reset();
  static void launch(std::span<Entry> entries);

  // Asked in every call. The library's few bytes fit in what the loader keeps for such variables.
  static inline thread_local int depth_ __attribute__((tls_model("initial-exec"))) = 0;
  std::vector<Entry> entries_;  // the first used_ of them; the others keep their memory
  std::size_t used_ = 0;
  std::vector<std::function<void()>> jobs_;
  std::exception_ptr error_;
};

/// Executes now (stream null) or on the stream.
void submit(const std::shared_ptr<Communicator>& communicator, HostStream* stream,
            const Operation& operation);

}  // namespace tutti
