// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>

#include <map>
#include <string>
#include <vector>

#include "support/catch.hpp"

std::vector<std::pair<const char*, long>> abi_of_tutti();
std::vector<std::pair<const char*, long>> abi_of_cuda();

TEST_CASE("the header has NCCL 2.28's values and layouts") {
  std::map<std::string, long> table;
  for (auto& [name, value] : abi_of_tutti()) table[name] = value;
  CHECK(table["NCCL_VERSION_CODE"] == 22809);
  CHECK(table["sizeof(ncclUniqueId)"] == 128);
  CHECK(table["sizeof(ncclConfig_t)"] == 80);
  CHECK(table["offsetof config netName"] == 32);
  CHECK(table["config.magic"] == 0xcafebeefL);
  CHECK(table["ncclMaxRedOp"] == 0x7fffffff);
  CHECK(table["ncclFloat8e5m2"] == 11);
#ifdef NCCL_HEADER_OF_CUDA
  for (auto& [name, value] : abi_of_cuda()) {
    INFO(name);
    CHECK(table[name] == value);
  }
#endif
}

TEST_CASE(
    "both libraries export every function under its plain and its p name, and nothing that is not theirs") {
  const std::vector<const char*> names = {"MemAlloc",
                                          "MemFree",
                                          "GetVersion",
                                          "GetUniqueId",
                                          "CommInitRankConfig",
                                          "CommInitRank",
                                          "CommInitAll",
                                          "CommFinalize",
                                          "CommDestroy",
                                          "CommAbort",
                                          "CommRevoke",
                                          "CommSplit",
                                          "CommShrink",
                                          "CommInitRankScalable",
                                          "GetErrorString",
                                          "GetLastError",
                                          "ResetDebugInit",
                                          "CommGetAsyncError",
                                          "CommCount",
                                          "CommCuDevice",
                                          "CommUserRank",
                                          "CommRegister",
                                          "CommDeregister",
                                          "CommWindowRegister",
                                          "CommWindowDeregister",
                                          "RedOpCreatePreMulSum",
                                          "RedOpDestroy",
                                          "Reduce",
                                          "Bcast",
                                          "Broadcast",
                                          "AllReduce",
                                          "ReduceScatter",
                                          "AllGather",
                                          "AlltoAll",
                                          "Gather",
                                          "Scatter",
                                          "Send",
                                          "Recv",
                                          "GroupStart",
                                          "GroupEnd",
                                          "GroupSimulateEnd"};
  for (const char* library : {LIBTUTTI_PATH, LIBNCCL_PATH}) {
    void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle != nullptr);
    for (const char* name : names)
      for (const char* prefix : {"nccl", "pnccl"}) {
        INFO(prefix << name << " in " << library);
        CHECK(dlsym(handle, (std::string(prefix) + name).c_str()) != nullptr);
      }
    CHECK(dlsym(handle, "tuttiStreamCreate") != nullptr);
    dlclose(handle);
  }
}
