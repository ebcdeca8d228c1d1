// SPDX-License-Identifier: BSD-3-Clause
//
// tutti.h: the job that this process was started in.
#include "api/handles.hpp"
#include "launch/launcher.hpp"
#include "tutti/tutti.h"

using namespace tutti;
using api::guarded;

extern "C" {

TUTTI_EXPORT ncclResult_t tuttiUniqueIdAt(ncclUniqueId* uniqueId, const char* address, const char* secret) {
  return guarded(__func__, [&] {
    api::require(uniqueId, "uniqueId");
    api::require(address, "address");
    *uniqueId = unique_id_at(address, secret == nullptr ? "" : secret).pack();
  });
}

TUTTI_EXPORT ncclResult_t tuttiWorldGet(tuttiWorld_t* world) {
  return guarded(__func__, [&] {
    api::require(world, "world");
    *world = Launcher::of_this_process()->world();
  });
}

TUTTI_EXPORT ncclResult_t tuttiWorldUniqueId(ncclUniqueId* uniqueId) {
  return guarded(__func__, [&] {
    api::require(uniqueId, "uniqueId");
    *uniqueId = Launcher::of_this_process()->unique_id().pack();
  });
}

}  // extern "C"
