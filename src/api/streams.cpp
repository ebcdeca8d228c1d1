// SPDX-License-Identifier: BSD-3-Clause
//
// tutti.h: the host device, host streams.
#include <mutex>
#include <unordered_map>

#include "api/handles.hpp"
#include "tutti/tutti.h"

namespace tutti::api {
namespace {

// Live streams, so that anything else that is passed as one is refused. The common NULL never comes here.
struct Streams {
  std::mutex mutex;
  std::unordered_map<const void*, std::shared_ptr<HostStream>> live;
};

Streams& streams() {
  static auto* instance = new Streams;  // leaked: streams may outlive static destructors
  return *instance;
}

std::shared_ptr<HostStream> find_stream(cudaStream_t stream) {
  Streams& all = streams();
  std::lock_guard lock(all.mutex);
  auto found = all.live.find(stream);
  if (found == all.live.end())
    fail(ncclInvalidArgument,
         "stream {} is not one of tuttiStreamCreate; on host memory the stream is one of those, or NULL",
         static_cast<const void*>(stream));
  return found->second;
}

}  // namespace

HostStream* stream_of(cudaStream_t stream) { return stream == nullptr ? nullptr : find_stream(stream).get(); }

}  // namespace tutti::api

using namespace tutti;
using tutti::api::guarded;

extern "C" {

TUTTI_EXPORT ncclResult_t tuttiSetDevice(int device) {
  return guarded(__func__, [&] {
    if (device < 0) fail(ncclInvalidArgument, "device {}: expected 0 or more", device);
    api::current_device() = device;
  });
}

TUTTI_EXPORT ncclResult_t tuttiStreamCreate(cudaStream_t* stream) {
  return guarded(__func__, [&] {
    api::require(stream, "stream");
    auto made = std::make_shared<HostStream>();
    *stream = reinterpret_cast<cudaStream_t>(made.get());
    auto& all = api::streams();
    std::lock_guard lock(all.mutex);
    all.live.emplace(*stream, std::move(made));
  });
}

TUTTI_EXPORT ncclResult_t tuttiStreamDestroy(cudaStream_t stream) {
  return guarded(__func__, [&] {
    if (stream == nullptr) return;
    auto found = api::find_stream(stream);
    if (found->is_own_thread()) fail(ncclInvalidUsage, "a stream's own callback cannot destroy the stream");
    auto& all = api::streams();
    std::lock_guard lock(all.mutex);
    all.live.erase(stream);
  });
}

TUTTI_EXPORT ncclResult_t tuttiStreamSynchronize(cudaStream_t stream) {
  return guarded(__func__, [&] {
    if (stream != nullptr) api::find_stream(stream)->synchronize();
  });
}

TUTTI_EXPORT ncclResult_t tuttiStreamQuery(cudaStream_t stream) {
  ncclResult_t state = ncclSuccess;
  ncclResult_t result = guarded(__func__, [&] {
    if (stream != nullptr) state = api::find_stream(stream)->query();
  });
  return result != ncclSuccess ? result : state;
}

TUTTI_EXPORT ncclResult_t tuttiStreamAddCallback(cudaStream_t stream, void (*function)(void* argument),
                                                 void* argument) {
  return guarded(__func__, [&] {
    if (function == nullptr) fail(ncclInvalidArgument, "function is NULL");
    if (stream == nullptr) return function(argument);
    api::find_stream(stream)->enqueue([=] { function(argument); });
  });
}

}  // extern "C"
