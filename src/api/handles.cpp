// SPDX-License-Identifier: BSD-3-Clause
#include "api/handles.hpp"

#include <deque>
#include <mutex>

#include "base/fence.hpp"
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

// The slots of all threads that have called.
struct AllSlots {
  std::mutex mutex;
  std::vector<UseSlots*> of_threads;
};

AllSlots& all_slots() {
  static auto* instance = new AllSlots;  // leaked, like the shells
  return *instance;
}

// Registers a thread's slots for as long as it lives.
class OwnSlots {
 public:
  OwnSlots() {
    std::lock_guard lock(all_slots().mutex);
    all_slots().of_threads.push_back(&slots);
  }
  ~OwnSlots() {
    std::lock_guard lock(all_slots().mutex);
    std::erase(all_slots().of_threads, &slots);
  }
  OwnSlots(const OwnSlots&) = delete;
  OwnSlots& operator=(const OwnSlots&) = delete;
  UseSlots slots;
};

// Apart from what every call passes.
[[gnu::noinline]] UseSlots* new_slots() {
  thread_local OwnSlots own;
  return &own.slots;
}

UseSlots* slots_of_this_thread() {
  thread_local UseSlots* known __attribute__((tls_model("initial-exec"))) = nullptr;
  if (known == nullptr) known = new_slots();
  return known;
}

bool is_in_use(const ncclComm* shell) {
  std::lock_guard lock(all_slots().mutex);
  for (const UseSlots* slots : all_slots().of_threads)
    for (const auto& handle : slots->handles)
      if (handle.load(std::memory_order_acquire) == shell) return true;
  return false;
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
  heavy_fence();  // who has entered before the magic went is seen below; who enters now sees that it is gone
  while (is_in_use(shell)) std::this_thread::yield();
  shell->communicator.reset();
  shell->join_abort.reset();
  Shells& all = shells();
  std::lock_guard lock(all.mutex);
  all.resting.push_back(shell);
}

HandleUse::HandleUse(ncclComm_t handle, bool must_be_ready) : shell_(handle), slots_(slots_of_this_thread()) {
  if (handle == nullptr) fail(ncclInvalidArgument, "the communicator is NULL");
  if (slots_->used == UseSlots::kMost) fail(ncclInternalError, "calls are nested too deep");
  slots_->handles[slots_->used++].store(shell_, std::memory_order_relaxed);
  light_fence();
  bool usable = shell_->magic.load(std::memory_order_acquire) == ncclComm::kAlive &&
                !Service::is_forked_child() &&
                (!must_be_ready || shell_->state.load(std::memory_order_acquire) == ncclComm::State::ready);
  if (usable) return;
  try {
    refuse();
  } catch (...) {
    leave();
    throw;
  }
}

void HandleUse::refuse() const {
  if (shell_->magic.load(std::memory_order_acquire) != ncclComm::kAlive)
    fail(ncclInvalidArgument, "the communicator handle {} is not one, or has been destroyed",
         static_cast<void*>(shell_));
  if (Service::is_forked_child())
    fail(ncclInvalidUsage, "the communicator was made before fork() and belongs to the parent process");
  if (shell_->state.load() == ncclComm::State::failed) throw Error(shell_->failure, shell_->failure_text);
  fail(ncclInvalidArgument,
       "the communicator is still being made: wait until ncclCommGetAsyncError gives ncclSuccess");
}

std::string& last_error() {
  thread_local std::string text;
  return text;
}

ncclResult_t report(const char* function, const Error& error) {
  last_error() = fmt::format("{}: {}", function, error.what());
  log_warning("{}", last_error());
  if (Group::is_open()) Group::of_this_thread().note_error(error);
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
