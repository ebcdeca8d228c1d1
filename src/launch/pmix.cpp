// SPDX-License-Identifier: BSD-3-Clause
//
// Jobs that a PMIx server started: Open MPI's mpirun, srun --mpi=pmix, prterun. The client library is loaded
// when it is needed and is no part of what Tutti links to.
#include "launch/launcher.hpp"

#ifdef TUTTI_PMIX
#include <dlfcn.h>
#include <pmix.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/error.hpp"
#include "base/log.hpp"
#include "launch/variables.hpp"

namespace tutti {

#ifdef TUTTI_PMIX
namespace {

constexpr char kIdKey[] = "tutti.unique_id";

// Never unloaded: its threads may run.
void* load_pmix() {
  static void* const kLibrary = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
  return kLibrary;
}

// This process's session with the PMIx server of its host. A server knows a process once: what was asked
// after a second PMIx_Init would be missing (PMIx 4.2), so that the session lasts as long as the process.
class PmixSession {
 public:
  static PmixSession& instance() {
    static PmixSession session;
    return session;
  }
  PmixSession(const PmixSession&) = delete;
  PmixSession& operator=(const PmixSession&) = delete;
  // A process that ends without a word counts as failed; a child of fork() has no session.
  ~PmixSession() {
    if (getpid() == process_) finalize_(nullptr, 0);
  }

  tuttiWorld_t world() const { return world_; }

  // Collective.
  const ncclUniqueId& unique_id() {
    if (!id_) id_ = exchange_id();
    return *id_;
  }

 private:
  PmixSession() {
    library_ = load_pmix();
    load(init_, "PMIx_Init");
    load(finalize_, "PMIx_Finalize");
    load(get_, "PMIx_Get");
    load(put_, "PMIx_Put");
    load(commit_, "PMIx_Commit");
    load(fence_, "PMIx_Fence");
    load(error_string_, "PMIx_Error_string");
    check(init_(&own_, nullptr, 0), "PMIx_Init");
    process_ = getpid();
    pmix_proc_t job = process(PMIX_RANK_WILDCARD);
    world_.rank = static_cast<int>(own_.rank);
    world_.size = static_cast<int>(get_number(job, PMIX_JOB_SIZE));
    world_.localRank = static_cast<int>(get_number(own_, PMIX_LOCAL_RANK));
    world_.localSize = static_cast<int>(get_number(job, PMIX_LOCAL_SIZE));
    world_.launcher = "pmix";
  }

  template <class Function>
  void load(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr) fail(ncclSystemError, "libpmix.so.2 has no {}", name);
  }

  void check(pmix_status_t status, const char* call) const {
    if (status != PMIX_SUCCESS)
      fail(ncclSystemError, "{} of the PMIx server that started this process failed: {}", call,
           error_string_(status));
  }

  pmix_proc_t process(pmix_rank_t rank) const {
    pmix_proc_t result{};
    std::memcpy(result.nspace, own_.nspace, sizeof result.nspace);
    result.rank = rank;
    return result;
  }

  // Who calls frees what is in it, then itself.
  pmix_value_t* get(const pmix_proc_t& of, const char* key) const {
    pmix_value_t* value = nullptr;
    check(get_(&of, key, nullptr, 0, &value), key);
    return value;
  }

  std::uint32_t get_number(const pmix_proc_t& of, const char* key) const {
    pmix_value_t* value = get(of, key);
    bool is_short = value->type == PMIX_UINT16;
    bool is_number = is_short || value->type == PMIX_UINT32;
    std::uint32_t number = is_short ? value->data.uint16 : value->data.uint32;
    std::free(value);
    if (!is_number) fail(ncclSystemError, "the PMIx server says no number for {}", key);
    return number;
  }

  ncclUniqueId exchange_id() {
    ncclUniqueId id{};
    if (own_.rank == 0) {
      id = make_unique_id().pack();
      pmix_value_t value{};
      value.type = PMIX_BYTE_OBJECT;
      value.data.bo = {id.internal, sizeof id.internal};
      check(put_(PMIX_GLOBAL, kIdKey, &value), "PMIx_Put");
      check(commit_(), "PMIx_Commit");
    }
    pmix_info_t collect{};
    std::memcpy(collect.key, PMIX_COLLECT_DATA, sizeof PMIX_COLLECT_DATA);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    check(fence_(nullptr, 0, &collect, 1), "PMIx_Fence");
    if (own_.rank == 0) return id;
    pmix_value_t* value = get(process(0), kIdKey);
    bool whole = value->type == PMIX_BYTE_OBJECT && value->data.bo.size == sizeof id.internal;
    if (whole) std::memcpy(id.internal, value->data.bo.bytes, sizeof id.internal);
    if (value->type == PMIX_BYTE_OBJECT) std::free(value->data.bo.bytes);
    std::free(value);
    if (!whole) fail(ncclSystemError, "the PMIx server gave no unique id back");
    return id;
  }

  void* library_ = nullptr;
  decltype(::PMIx_Init)* init_ = nullptr;
  decltype(::PMIx_Finalize)* finalize_ = nullptr;
  decltype(::PMIx_Get)* get_ = nullptr;
  decltype(::PMIx_Put)* put_ = nullptr;
  decltype(::PMIx_Commit)* commit_ = nullptr;
  decltype(::PMIx_Fence)* fence_ = nullptr;
  decltype(::PMIx_Error_string)* error_string_ = nullptr;
  pmix_proc_t own_{};
  pid_t process_ = 0;
  tuttiWorld_t world_{};
  std::optional<ncclUniqueId> id_;
};

class PmixLauncher : public Launcher {
 public:
  tuttiWorld_t world() override { return PmixSession::instance().world(); }
  UniqueId unique_id() override {
    if (world().size == 1) return make_unique_id();
    return UniqueId::unpack(PmixSession::instance().unique_id());
  }
};

}  // namespace
#endif

std::unique_ptr<Launcher> find_pmix_launcher() {
  if (variable("PMIX_NAMESPACE").empty() || variable("PMIX_RANK").empty()) return nullptr;
#ifdef TUTTI_PMIX
  if (load_pmix() != nullptr) return std::make_unique<PmixLauncher>();
  log_warning("PMIX_RANK is set, but libpmix.so.2 cannot be loaded (Debian: libpmix2)");
#else
  log_warning("PMIX_RANK is set, but this library was built without PMIx (Debian: libpmix-dev)");
#endif
  return nullptr;
}

}  // namespace tutti
