// SPDX-License-Identifier: BSD-3-Clause
//
// Communicators, memory, registrations, errors: everything of nccl.h but the collectives.
#include <mutex>
#include <set>

#include "api/handles.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "communicator/group.hpp"
#include "communicator/split.hpp"
#include "memory/host_memory.hpp"

using namespace tutti;
using tutti::api::guarded;
using tutti::api::HandleUse;

namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;
constexpr int kMostRanks = 32768;  // a rank travels in 16 bits

// A config of an older or newer header has another size: fields beyond what both know keep their defaults.
ncclConfig_t checked(const ncclConfig_t* config) {
  ncclConfig_t result = NCCL_CONFIG_INITIALIZER;
  if (config == nullptr) return result;
  if (config->magic != kConfigMagic)
    fail(ncclInvalidArgument, "the config was not set up with NCCL_CONFIG_INITIALIZER (magic {:#x})",
         config->magic);
  if (config->size < offsetof(ncclConfig_t, cgaClusterSize) || config->size > 4096)
    fail(ncclInvalidArgument,
         "the config's size is {}, expected {}; was it set up with NCCL_CONFIG_INITIALIZER?", config->size,
         sizeof(ncclConfig_t));
  std::memcpy(static_cast<void*>(&result), config, std::min(config->size, sizeof result));
  if (result.blocking != NCCL_CONFIG_UNDEF_INT && result.blocking != 0 && result.blocking != 1)
    fail(ncclInvalidArgument, "config.blocking is {}, expected 0 or 1", result.blocking);
  return result;
}

CommunicatorOptions options_from(const ncclConfig_t& config) {
  CommunicatorOptions options;
  options.device = api::current_device();
  options.blocking = config.blocking != 0;
  if (config.commName != nullptr) options.name = config.commName;
  return options;
}

void check_ranks(int ranks, int rank) {
  if (ranks < 1 || ranks > kMostRanks)
    fail(ncclInvalidArgument, "{} ranks: expected 1 to {}", ranks, kMostRanks);
  if (rank < 0 || rank >= ranks)
    fail(ncclInvalidArgument, "rank {} of {}: expected 0 to {}", rank, ranks, ranks - 1);
}

using Maker = std::function<std::shared_ptr<Communicator>(const CommunicatorOptions&)>;

// Runs the maker: now, with the others of the group at its end, or in the background.
void make(ncclComm_t* result, bool blocking, CommunicatorOptions options, const Maker& maker) {
  *result = nullptr;
  if (!blocking) {
    ncclComm* shell = api::acquire_shell();
    shell->join_abort = options.join_abort = std::make_shared<JoinAbort>();
    *result = shell;
    shell->maker = start_thread("tutti-join", [shell, maker, options] {
      try {
        shell->communicator = maker(options);
        shell->state = ncclComm::State::ready;
      } catch (const Error& error) {
        shell->failure = error.code();
        shell->failure_text = error.what();
        shell->state = ncclComm::State::failed;
      }
    });
    return;
  }
  auto job = [result, maker, options = std::move(options)] {
    auto communicator = maker(options);
    if (!communicator) return;
    ncclComm* shell = api::acquire_shell();
    shell->communicator = std::move(communicator);
    shell->state = ncclComm::State::ready;
    *result = shell;
  };
  Group& group = Group::of_this_thread();
  if (group.is_open())
    group.add_job(job);
  else
    job();
}

void init_rank(ncclComm_t* comm, int ranks, std::vector<UniqueId> ids, int rank, const ncclConfig_t* config) {
  check_ranks(ranks, rank);
  CommunicatorOptions options = options_from(checked(config));
  options.ids = std::move(ids);
  options.ranks = ranks;
  options.rank = rank;
  bool blocking = options.blocking;
  make(comm, blocking, std::move(options), &Communicator::create);
  if (!blocking) throw Error(ncclInProgress, "the communicator is being made");
}

// ncclInProgress is no error: it must neither be logged nor break a group.
template <class Body>
ncclResult_t guarded_init(const char* function, Body&& body) {
  ncclResult_t progress = ncclSuccess;
  ncclResult_t result = guarded(function, [&] {
    try {
      body();
    } catch (const Error& error) {
      if (error.code() != ncclInProgress) throw;
      progress = ncclInProgress;
    }
  });
  return result != ncclSuccess ? result : progress;
}

void not_yet(const char* what) {
  fail(ncclInvalidUsage, "{} is not there in this version (docs/limits.md says what is not); it did nothing",
       what);
}

// Handles of ncclCommRegister and windows: remembered so that a wrong one is refused.
struct RegistrationTable {
  std::mutex mutex;
  std::set<std::pair<const void*, const void*>> live;  // communicator, handle
};

RegistrationTable& registrations() {
  static auto* table = new RegistrationTable;  // leaked: see the other tables
  return *table;
}

void* add_registration(const Communicator& communicator) {
  auto* handle = new char;  // its address is the handle; freed by remove_registration
  auto& table = registrations();
  std::lock_guard lock(table.mutex);
  table.live.emplace(&communicator, handle);
  return handle;
}

void remove_registration(const Communicator& communicator, const void* handle, const char* what) {
  auto& table = registrations();
  std::lock_guard lock(table.mutex);
  if (table.live.erase({&communicator, handle}) == 0)
    fail(ncclInvalidArgument, "{} is no {} of this communicator, or it was deregistered already", handle,
         what);
  delete static_cast<const char*>(handle);
}

}  // namespace

TUTTI_API(ncclResult_t, ncclGetVersion, int* version) {
  return guarded("ncclGetVersion", [&] {
    api::require(version, "version");
    *version = NCCL_VERSION_CODE;
  });
}

TUTTI_API(ncclResult_t, ncclGetUniqueId, ncclUniqueId* uniqueId) {
  return guarded("ncclGetUniqueId", [&] {
    api::require(uniqueId, "uniqueId");
    *uniqueId = make_unique_id().pack();
  });
}

TUTTI_API(ncclResult_t, ncclCommInitRankConfig, ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
          ncclConfig_t* config) {
  return guarded_init("ncclCommInitRankConfig", [&] {
    api::require(comm, "comm");
    init_rank(comm, nranks, {UniqueId::unpack(commId)}, rank, config);
  });
}

TUTTI_API(ncclResult_t, ncclCommInitRank, ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return guarded_init("ncclCommInitRank", [&] {
    api::require(comm, "comm");
    init_rank(comm, nranks, {UniqueId::unpack(commId)}, rank, nullptr);
  });
}

TUTTI_API(ncclResult_t, ncclCommInitRankScalable, ncclComm_t* newcomm, int nranks, int myrank, int nId,
          ncclUniqueId* commIds, ncclConfig_t* config) {
  return guarded_init("ncclCommInitRankScalable", [&] {
    api::require(newcomm, "newcomm");
    api::require(commIds, "commIds");
    if (nId < 1 || nId > nranks)
      fail(ncclInvalidArgument, "nId is {}, expected 1 to {} (nranks)", nId, nranks);
    std::vector<UniqueId> ids;
    for (int i = 0; i < nId; ++i) ids.push_back(UniqueId::unpack(commIds[i]));
    init_rank(newcomm, nranks, std::move(ids), myrank, config);
  });
}

TUTTI_API(ncclResult_t, ncclCommInitAll, ncclComm_t* comm, int ndev, const int* devlist) {
  return guarded("ncclCommInitAll", [&] {
    api::require(comm, "comm");
    check_ranks(ndev, 0);
    for (int i = 0; devlist != nullptr && i < ndev; ++i)
      if (devlist[i] < 0) fail(ncclInvalidArgument, "devlist[{}] is {}, expected 0 or more", i, devlist[i]);
    UniqueId id{Service::instance().listen_addresses(), Secret::random()};
    Service::instance().host_directory(id.secret, std::chrono::milliseconds(0));
    Group& group = Group::of_this_thread();
    group.start();
    for (int i = 0; i < ndev; ++i) {
      CommunicatorOptions options;
      options.ids = {id};
      options.ranks = ndev;
      options.rank = i;
      options.device = devlist != nullptr ? devlist[i] : i;
      make(&comm[i], true, std::move(options), &Communicator::create);
    }
    group.end();
  });
}

TUTTI_API(ncclResult_t, ncclCommFinalize, ncclComm_t comm) {
  return guarded("ncclCommFinalize", [&] { HandleUse(comm)->finalize(); });
}

TUTTI_API(ncclResult_t, ncclCommDestroy, ncclComm_t comm) {
  return guarded("ncclCommDestroy", [&] {
    {
      HandleUse use(comm, false);
      if (use.shell().maker.joinable()) use.shell().maker.join();
      if (use.shell().communicator) use->finalize();
    }
    api::release_shell(comm);
  });
}

TUTTI_API(ncclResult_t, ncclCommAbort, ncclComm_t comm) {
  return guarded("ncclCommAbort", [&] {
    {
      HandleUse use(comm, false);
      if (use.shell().join_abort) use.shell().join_abort->request();
      if (use.shell().maker.joinable()) use.shell().maker.join();
      if (use.shell().communicator) use->abort();
    }
    api::release_shell(comm);
  });
}

TUTTI_API(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int revokeFlags) {
  (void)revokeFlags;
  return guarded("ncclCommRevoke", [&] {
    HandleUse use(comm);
    not_yet("ncclCommRevoke");
  });
}

TUTTI_API(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
          ncclConfig_t* config) {
  return guarded_init("ncclCommSplit", [&] {
    HandleUse use(comm);
    api::require(newcomm, "newcomm");
    CommunicatorOptions options = options_from(checked(config));
    options.device = use->device();
    if (config == nullptr) options.blocking = use->blocking();
    const auto& parent = use.shared();  // the maker keeps a copy: it may outlive this call
    // A rank without a colour gets NULL and nothing that it could poll, so that it waits even if
    // non-blocking.
    bool blocking = options.blocking || color == NCCL_SPLIT_NOCOLOR;
    make(newcomm, blocking, std::move(options),
         [parent, color, key](const CommunicatorOptions& with) { return split(*parent, color, key, with); });
    if (!blocking) throw Error(ncclInProgress, "the communicator is being made");
  });
}

TUTTI_API(ncclResult_t, ncclCommShrink, ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
          ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  (void)excludeRanksList, (void)excludeRanksCount, (void)config, (void)shrinkFlags;
  return guarded("ncclCommShrink", [&] {
    HandleUse use(comm);
    if (newcomm != nullptr) *newcomm = nullptr;
    not_yet("ncclCommShrink");
  });
}

TUTTI_API(const char*, ncclGetErrorString, ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the Tutti developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

TUTTI_API(const char*, ncclGetLastError, ncclComm_t comm) {
  auto find = [comm]() -> std::string {
    if (comm == nullptr || comm->magic.load() != ncclComm::kAlive) return api::last_error();
    HandleUse use(comm, false);
    auto state = comm->state.load();
    if (state == ncclComm::State::failed) return comm->failure_text;
    if (state == ncclComm::State::ready && use->health().is_broken()) return use->health().reason();
    return api::last_error();
  };
  thread_local std::string text;
  try {
    text = find();
  } catch (const Error&) {  // destroyed meanwhile by another thread
    text = api::last_error();
  }
  return text.c_str();  // NOLINT(clang-analyzer-cplusplus.InnerPointer): lives until the next call
}

TUTTI_API(void, ncclResetDebugInit, void) {}

TUTTI_API(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t* asyncError) {
  return guarded("ncclCommGetAsyncError", [&] {
    HandleUse use(comm, false);
    api::require(asyncError, "asyncError");
    switch (comm->state.load()) {
      case ncclComm::State::making:
        *asyncError = ncclInProgress;
        break;
      case ncclComm::State::failed:
        *asyncError = comm->failure;
        break;
      case ncclComm::State::ready:
        *asyncError = use->health().code();
        break;
    }
  });
}

TUTTI_API(ncclResult_t, ncclCommCount, const ncclComm_t comm, int* count) {
  return guarded("ncclCommCount", [&] {
    HandleUse use(comm);
    api::require(count, "count");
    *count = use->ranks();
  });
}

TUTTI_API(ncclResult_t, ncclCommCuDevice, const ncclComm_t comm, int* device) {
  return guarded("ncclCommCuDevice", [&] {
    HandleUse use(comm);
    api::require(device, "device");
    *device = use->device();
  });
}

TUTTI_API(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int* rank) {
  return guarded("ncclCommUserRank", [&] {
    HandleUse use(comm);
    api::require(rank, "rank");
    *rank = use->rank();
  });
}

TUTTI_API(ncclResult_t, ncclMemAlloc, void** ptr, size_t size) {
  return guarded("ncclMemAlloc", [&] {
    api::require(ptr, "ptr");
    *ptr = nullptr;
    *ptr = WindowTable::instance().allocate(size);
  });
}

TUTTI_API(ncclResult_t, ncclMemFree, void* ptr) {
  return guarded("ncclMemFree", [&] {
    if (ptr != nullptr) WindowTable::instance().free(ptr);
  });
}

TUTTI_API(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void* buff, size_t size, void** handle) {
  return guarded("ncclCommRegister", [&] {
    HandleUse use(comm);
    api::require(buff, "buff");
    api::require(handle, "handle");
    if (size == 0) fail(ncclInvalidArgument, "size is 0");
    *handle = add_registration(*use);
  });
}

TUTTI_API(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void* handle) {
  return guarded("ncclCommDeregister",
                 [&] { remove_registration(*HandleUse(comm), handle, "registration"); });
}

TUTTI_API(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
          int winFlags) {
  return guarded("ncclCommWindowRegister", [&] {
    HandleUse use(comm);
    api::require(buff, "buff");
    api::require(win, "win");
    if (size == 0) fail(ncclInvalidArgument, "size is 0");
    if (reinterpret_cast<std::uintptr_t>(buff) % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
      fail(ncclInvalidArgument, "buff {} is not a multiple of {} (NCCL_WIN_REQUIRED_ALIGNMENT)", buff,
           NCCL_WIN_REQUIRED_ALIGNMENT);
    if ((winFlags & ~NCCL_WIN_COLL_SYMMETRIC) != 0)
      fail(ncclInvalidArgument, "unknown bits in winFlags {:#x}", winFlags);
    *win = reinterpret_cast<ncclWindow_t>(add_registration(*use));
  });
}

TUTTI_API(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t win) {
  return guarded("ncclCommWindowDeregister", [&] { remove_registration(*HandleUse(comm), win, "window"); });
}

TUTTI_API(ncclResult_t, ncclGroupStart, void) {
  return guarded("ncclGroupStart", [] { Group::of_this_thread().start(); });
}

TUTTI_API(ncclResult_t, ncclGroupEnd, void) {
  return guarded("ncclGroupEnd", [] { Group::of_this_thread().end(); });
}

TUTTI_API(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t* simInfo) {
  (void)simInfo;
  return guarded("ncclGroupSimulateEnd", [] { not_yet("ncclGroupSimulateEnd"); });
}
