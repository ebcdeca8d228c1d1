// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks for tests: as threads of this process, or as child processes.
#pragma once
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "nccl.h"

namespace support {

/// Communicators of all ranks in this process, destroyed at the end unless taken.
class LocalRanks {
 public:
  explicit LocalRanks(int n) : comms(static_cast<std::size_t>(n)) {
    if (ncclCommInitAll(comms.data(), n, nullptr) != ncclSuccess)
      throw std::runtime_error(ncclGetLastError(nullptr));
  }
  ~LocalRanks() {
    for (ncclComm_t comm : comms)
      if (comm != nullptr) ncclCommDestroy(comm);
  }
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  /// Runs body(rank, comm) in a thread each, waits for all, and throws what the lowest of the ranks threw.
  void run(const std::function<void(int, ncclComm_t)>& body) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> errors(comms.size());
    for (std::size_t r = 0; r < comms.size(); ++r)
      threads.emplace_back([&, r] {
        try {
          body(static_cast<int>(r), comms[r]);
        } catch (...) {
          errors[r] = std::current_exception();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  }

  std::vector<ncclComm_t> comms;
};

/// Sets an environment variable for the time of a scope.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) {
      had_ = true;
      old_ = old;
    }
    setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (had_)
      setenv(name_, old_.c_str(), 1);
    else
      unsetenv(name_);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  bool had_ = false;
  std::string old_;
};

/// How a child process ended: exit code, or -signal; -1000 when it had to be killed at the time limit.
using Endings = std::vector<int>;

/// Forks a process per rank, runs body(rank, id) in each, and collects how they ended; the body's result is
/// the exit code. The calling process must not have used the library before. Bounded by `seconds`.
Endings run_processes(int ranks, const std::function<int(int, ncclUniqueId)>& body, int seconds = 60);

}  // namespace support
