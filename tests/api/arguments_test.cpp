// SPDX-License-Identifier: BSD-3-Clause
//
// What is refused, in words, and what is answered.
#include <cstring>
#include <stdexcept>

#include "support/catch.hpp"
#include "support/ranks.hpp"

using support::LocalRanks;

TEST_CASE("version, error strings and NULL arguments") {
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version == NCCL_VERSION_CODE);
  CHECK(ncclGetVersion(nullptr) == ncclInvalidArgument);
  CHECK(says(ncclGetLastError(nullptr), {"ncclGetVersion", "version is NULL"}));
  CHECK(std::string(ncclGetErrorString(ncclSuccess)) == "no error");
  CHECK(std::string(ncclGetErrorString(static_cast<ncclResult_t>(12))) == "unknown result code");
  CHECK(ncclCommDestroy(nullptr) == ncclInvalidArgument);
}

TEST_CASE("wrong arguments are refused in words and the communicator stays usable") {
  LocalRanks ranks(2);
  ranks.run([](int rank, ncclComm_t comm) {
    float data[4] = {1, 1, 1, 1};
    auto fails = [&](ncclResult_t result, std::initializer_list<const char*> parts) {
      return result == ncclInvalidArgument && says(ncclGetLastError(nullptr), parts);
    };
    bool ok =
        fails(ncclAllReduce(data, data, 4, static_cast<ncclDataType_t>(13), ncclSum, comm, nullptr),
              {"13"}) &&
        fails(ncclAllReduce(data, data, 4, ncclFloat, static_cast<ncclRedOp_t>(55), comm, nullptr), {"55"}) &&
        fails(ncclBroadcast(data, data, 4, ncclFloat, 2, comm, nullptr), {"root is 2", "0 to 1"}) &&
        fails(ncclReduce(data, data, 4, ncclFloat, ncclSum, -1, comm, nullptr), {"root is -1"}) &&
        fails(ncclSend(data, 4, ncclFloat, 7, comm, nullptr), {"peer is 7"}) &&
        fails(ncclAllReduce(nullptr, data, 4, ncclFloat, ncclSum, comm, nullptr), {"sendbuff"}) &&
        fails(ncclAllReduce(data, nullptr, 4, ncclFloat, ncclSum, comm, nullptr), {"recvbuff"}) &&
        fails(ncclAllGather(data, data, SIZE_MAX / 4, ncclFloat, comm, nullptr), {"count"}) &&
        fails(ncclAllReduce(data, data, 4, ncclFloat, ncclSum, comm, reinterpret_cast<cudaStream_t>(&data)),
              {"stream"}) &&
        ncclSend(data, 4, ncclFloat, rank, comm, nullptr) == ncclInvalidUsage;
    ok = ok && ncclAllReduce(nullptr, nullptr, 0, ncclFloat, ncclSum, comm, nullptr) == ncclSuccess;
    ok = ok && ncclAllReduce(data, data, 4, ncclFloat, ncclSum, comm, nullptr) == ncclSuccess && data[3] == 2;
    if (!ok) throw std::runtime_error("an argument was not refused as it should be");
  });
  int info = 0;
  CHECK(ncclCommCount(ranks.comms[1], &info) == ncclSuccess);
  CHECK(info == 2);
  CHECK(ncclCommUserRank(ranks.comms[1], &info) == ncclSuccess);
  CHECK(info == 1);
  CHECK(ncclCommCuDevice(ranks.comms[1], &info) == ncclSuccess);
  CHECK(info == 1);
}

TEST_CASE("configs are checked by magic and size") {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  ncclConfig_t zero{};
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &zero) == ncclInvalidArgument);
  CHECK(says(ncclGetLastError(nullptr), {"NCCL_CONFIG_INITIALIZER"}));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.size = offsetof(ncclConfig_t, netName);  // of an older header
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  config.blocking = 7;
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
  for (auto [ranks, rank] : {std::pair{0, 0}, {2, 2}, {2, -1}})
    CHECK(ncclCommInitRank(&comm, ranks, id, rank) == ncclInvalidArgument);
  ncclUniqueId rubbish{};
  CHECK(ncclCommInitRank(&comm, 2, rubbish, 0) == ncclInvalidArgument);
}

TEST_CASE("handles are invalid after destroy, and destroy after finalize is clean") {
  LocalRanks ranks(2);
  ranks.run([](int, ncclComm_t comm) { ncclCommFinalize(comm); });
  float x = 1;
  CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, ranks.comms[0], nullptr) == ncclInvalidUsage);
  CHECK(ncclCommDestroy(ranks.comms[0]) == ncclSuccess);
  CHECK(ncclCommDestroy(ranks.comms[0]) == ncclInvalidArgument);
  CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, ranks.comms[0], nullptr) == ncclInvalidArgument);
  ranks.comms[0] = nullptr;
}

TEST_CASE("memory of ncclMemAlloc, registrations and windows are checked") {
  LocalRanks ranks(1);
  ncclComm_t comm = ranks.comms[0];
  void* memory = nullptr;
  REQUIRE(ncclMemAlloc(&memory, 10000) == ncclSuccess);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % 4096 == 0);
  std::memset(memory, 1, 10000);
  void* handle = nullptr;
  CHECK(ncclCommRegister(comm, memory, 10000, &handle) == ncclSuccess);
  CHECK(ncclCommDeregister(comm, handle) == ncclSuccess);
  CHECK(ncclCommDeregister(comm, handle) == ncclInvalidArgument);
  ncclWindow_t window = nullptr;
  CHECK(ncclCommWindowRegister(comm, static_cast<char*>(memory) + 1, 10, &window, 0) == ncclInvalidArgument);
  CHECK(ncclCommWindowRegister(comm, memory, 10000, &window, NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess);
  CHECK(ncclCommWindowDeregister(comm, window) == ncclSuccess);
  CHECK(ncclMemFree(memory) == ncclSuccess);
  CHECK(ncclMemFree(memory) == ncclInvalidArgument);
  CHECK(ncclMemFree(nullptr) == ncclSuccess);
}

TEST_CASE("what is not there yet says so") {
  LocalRanks ranks(1);
  ncclComm_t comm = nullptr;
  CHECK(ncclCommShrink(ranks.comms[0], nullptr, 0, &comm, nullptr, 0) == ncclInvalidUsage);
  CHECK(says(ncclGetLastError(nullptr), {"ncclCommShrink", "is not there"}));
  CHECK(ncclCommRevoke(ranks.comms[0], 0) == ncclInvalidUsage);
  CHECK(ncclGroupSimulateEnd(nullptr) == ncclInvalidUsage);
}
