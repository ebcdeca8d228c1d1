// SPDX-License-Identifier: BSD-3-Clause
//
// src/api: NCCL's and Tutti's C functions: check the arguments, translate, hand over. No exception leaves it.
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "communicator/communicator.hpp"
#include "executor/stream.hpp"

/// What an ncclComm_t points to. These small shells are recycled, never freed, so that a handle that was
/// destroyed can be told from a live one.
struct ncclComm {
  static constexpr std::uint64_t kAlive = 0x7574746974757474;
  enum class State { making, ready, failed };

  std::atomic<std::uint64_t> magic{0};
  std::atomic<State> state{State::making};
  std::shared_ptr<tutti::Communicator> communicator;
  ncclResult_t failure = ncclSuccess;  // when failed
  std::string failure_text;
  std::thread maker;                             // of a non-blocking communicator,
  std::shared_ptr<tutti::JoinAbort> join_abort;  // and what ends its waiting for others
};

namespace tutti::api {

/// A shell that is alive and in the making.
ncclComm* acquire_shell();
/// The handle is invalid from here on; waits for calls that are inside, then lets go of the communicator.
void release_shell(ncclComm* shell);

/// Where a thread says which handles its calls are inside of, so that nobody lets go of them meanwhile. Plain
/// stores by the thread; who releases a handle looks at the slots of all threads.
struct UseSlots {
  static constexpr std::size_t kMost = 4;
  std::array<std::atomic<const ncclComm*>, kMost> handles{};
  std::size_t used = 0;
};

/// A live communicator for the time of a call. Throws ncclInvalidArgument for NULL, for what is no
/// communicator (any more) and for one that is still in the making; the error of its making if that failed.
class HandleUse {
 public:
  explicit HandleUse(ncclComm_t handle, bool must_be_ready = true);
  ~HandleUse() { leave(); }
  HandleUse(const HandleUse&) = delete;
  HandleUse& operator=(const HandleUse&) = delete;
  Communicator& operator*() const { return *shell_->communicator; }
  Communicator* operator->() const { return shell_->communicator.get(); }
  const std::shared_ptr<Communicator>& shared() const { return shell_->communicator; }
  ncclComm& shell() const { return *shell_; }

 private:
  [[noreturn]] void refuse() const;
  void leave() {
    UseSlots& slots = *slots_;
    slots.handles[--slots.used].store(nullptr, std::memory_order_release);
  }
  ncclComm* shell_;
  UseSlots* slots_;
};

/// The host stream behind a cudaStream_t, nullptr for NULL. Throws ncclInvalidArgument for what is none.
HostStream* stream_of(cudaStream_t stream);

/// Makes the thread's last error and returns its code; inside a group the group fails with it.
ncclResult_t report(const char* function, const Error& error);
/// What ncclGetLastError(NULL) gives.
std::string& last_error();

/// Runs the body of a C function.
template <class Body>
ncclResult_t guarded(const char* function, Body&& body) {
  try {
    body();
    return ncclSuccess;
  } catch (const Error& error) {
    return report(function, error);
  } catch (const std::bad_alloc&) {
    return report(function, Error(ncclSystemError, "out of memory"));
  } catch (const std::exception& error) {
    return report(function, Error(ncclInternalError, error.what()));
  }
}

/// Throws ncclInvalidArgument when a pointer argument is NULL.
void require(const void* pointer, const char* argument);

/// The host device of this thread (tuttiSetDevice).
int& current_device();

}  // namespace tutti::api

/// Before a function of tutti.h.
#define TUTTI_EXPORT __attribute__((visibility("default")))

/// Defines a function of NCCL's API under its p name, and its plain name as a weak alias that profilers can
/// interpose.
#define TUTTI_API(result, name, ...)                                                                  \
  extern "C" __attribute__((visibility("default"))) result p##name(__VA_ARGS__);                      \
  extern "C" __attribute__((visibility("default"), weak, alias("p" #name))) result name(__VA_ARGS__); \
  result p##name(__VA_ARGS__)
