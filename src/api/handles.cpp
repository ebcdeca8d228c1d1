// SPDX-License-Identifier: BSD-3-Clause
#include "api/handles.hpp"

#include <deque>
#include <mutex>

#include "base/log.hpp"
#include "communicator/group.hpp"

namespace tutti::api {
namespace {

// So many shells rest before one is used again: for that long a stale handle is recognized for sure.
constexpr std::size_t kResting = 1024;

struct Shells {
  std::mutex mutex;
  std::deque<ncclComm*> resting;
};

Shells& shells() {
  static auto* instance = new Shells;  // leaked: handles may be used until the very end of the process
  return *instance;
}

}  // namespace

ncclComm* acquire_shell() {
  Shells& all = shells();
  ncclComm* shell = nullptr;
  {
    std::lock_guard lock(all.mutex);
    if (all.resting.size() >= kResting) {
      shell = all.resting.front();
      all.resting.pop_front();
    }
  }
  if (shell == nullptr) shell = new ncclComm;  // see ncclComm: owned by the list for ever
  shell->state = ncclComm::State::making;
  shell->failure = ncclSuccess;
  shell->magic = ncclComm::kAlive;
  return shell;
}

void release_shell(ncclComm* shell) {
  shell->magic = 0;
  if (shell->maker.joinable()) shell->maker.join();
  while (shell->users.load() != 0) std::this_thread::yield();
  shell->communicator.reset();
  shell->join_abort.reset();
  Shells& all = shells();
  std::lock_guard lock(all.mutex);
  all.resting.push_back(shell);
}

HandleUse::HandleUse(ncclComm_t handle, bool must_be_ready) : shell_(handle) {
  if (handle == nullptr) fail(ncclInvalidArgument, "the communicator is NULL");
  shell_->users.fetch_add(1);
  try {
    if (shell_->magic.load() != ncclComm::kAlive)
      fail(ncclInvalidArgument, "the communicator handle {} is not one, or has been destroyed",
           static_cast<void*>(handle));
    if (Service::is_forked_child())
      fail(ncclInvalidUsage, "the communicator was made before fork() and belongs to the parent process");
    if (!must_be_ready) return;
    auto state = shell_->state.load();
    if (state == ncclComm::State::making)
      fail(ncclInvalidArgument,
           "the communicator is still being made: wait until ncclCommGetAsyncError gives ncclSuccess");
    if (state == ncclComm::State::failed) throw Error(shell_->failure, shell_->failure_text);
  } catch (...) {
    shell_->users.fetch_sub(1);
    throw;
  }
}

HandleUse::~HandleUse() { shell_->users.fetch_sub(1); }

std::string& last_error() {
  thread_local std::string text;
  return text;
}

ncclResult_t report(const char* function, const Error& error) {
  last_error() = fmt::format("{}: {}", function, error.what());
  log_warning("{}", last_error());
  Group& group = Group::of_this_thread();
  if (group.is_open()) group.note_error(error);
  return error.code();
}

void require(const void* pointer, const char* argument) {
  if (pointer == nullptr) fail(ncclInvalidArgument, "{} is NULL", argument);
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

}  // namespace tutti::api
