// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks as processes: what only they can show. This process itself never uses the library (see
// run_processes).
#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <set>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "tutti/communicator.hpp"

using support::Endings;
using support::run_processes;

namespace {

// Those with `part` in their names: other programs use the same folders.
std::set<std::string> files_in(const char* folder, const char* part = "") {
  std::set<std::string> names;
  if (DIR* directory = opendir(folder)) {
    while (const dirent* entry = readdir(directory))
      if (std::strstr(entry->d_name, part) != nullptr) names.insert(entry->d_name);
    closedir(directory);
  }
  return names;
}

int fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, ncclGetLastError(nullptr));
  return 1;
}

}  // namespace

TEST_CASE("a killed process is named on every survivor, and nothing is left behind") {
  auto shared_before = files_in("/dev/shm");
  auto temporary_before = files_in("/tmp", "tutti");
  for (bool large : {false, true}) {
    Endings endings = run_processes(4, [large](int rank, ncclUniqueId id) {
      ncclComm_t comm = nullptr;
      if (ncclCommInitRank(&comm, 4, id, rank) != ncclSuccess) return fail("init");
      std::vector<float> data(large ? 4 << 20 : 2, 1);
      for (int k = 0; k < 1'000'000; ++k) {
        if (rank == 2 && k == (large ? 3 : 1000)) kill(getpid(), SIGKILL);
        ncclResult_t result =
            ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat, ncclMax, comm, nullptr);
        if (result == ncclSuccess) continue;
        ncclResult_t state = ncclSuccess;
        ncclCommGetAsyncError(comm, &state);
        bool named = std::strstr(ncclGetLastError(comm), "rank 2") != nullptr;
        bool later =
            ncclAllReduce(data.data(), data.data(), 1, ncclFloat, ncclSum, comm, nullptr) == ncclRemoteError;
        bool ended = ncclCommAbort(comm) == ncclSuccess;
        return result == ncclRemoteError && state == ncclRemoteError && named && later && ended
                   ? 0
                   : fail("not named");
      }
      return 2;
    });
    CHECK(endings == Endings{0, 0, -SIGKILL, 0});
  }
  CHECK(files_in("/dev/shm") == shared_before);
  CHECK(files_in("/tmp", "tutti") == temporary_before);
}

TEST_CASE("a process that dies while others join fails them at once") {
  // The fourth rank never comes, so that the others are still joining when rank 1 dies.
  Endings endings = run_processes(3, [](int rank, ncclUniqueId id) {
    ncclComm_t comm = nullptr;
    if (rank == 1) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      ncclCommInitRankConfig(&comm, 4, id, rank, &config);
      usleep(300'000);  // long enough to register; if it was not, the test fails, at its time limit
      kill(getpid(), SIGKILL);
    }
    ncclResult_t result = ncclCommInitRank(&comm, 4, id, rank);
    bool told = result == ncclRemoteError && std::strstr(ncclGetLastError(nullptr), "rank 1") != nullptr;
    return told ? 0 : fail("join");
  });
  CHECK(endings == Endings{0, -SIGKILL, 0});
}

TEST_CASE("mismatched calls of processes show both calls on both ranks") {
  Endings endings = run_processes(2, [](int rank, ncclUniqueId id) {
    ncclComm_t comm = nullptr;
    if (ncclCommInitRank(&comm, 2, id, rank) != ncclSuccess) return fail("init");
    std::vector<float> data(100, 1);
    ncclResult_t result = rank == 0
                              ? ncclAllReduce(data.data(), data.data(), 10, ncclFloat, ncclSum, comm, nullptr)
                              : ncclAllGather(data.data(), data.data(), 10, ncclFloat, comm, nullptr);
    const char* words = ncclGetLastError(comm);
    bool both =
        std::strstr(words, "ncclAllReduce") != nullptr && std::strstr(words, "ncclAllGather") != nullptr;
    ncclCommAbort(comm);
    return result == ncclInvalidUsage && both ? 0 : fail("mismatch");
  });
  CHECK(endings == Endings{0, 0});
}

TEST_CASE("a child of fork is refused and its parent goes on") {
  Endings endings = run_processes(2, [](int rank, ncclUniqueId id) {
    ncclComm_t comm = nullptr;
    if (ncclCommInitRank(&comm, 2, id, rank) != ncclSuccess) return fail("init");
    int x = 1;
    if (rank == 0) {
      pid_t child = fork();
      if (child == 0) {
        ncclResult_t result = ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comm, nullptr);
        _exit(result == ncclInvalidUsage ? 0 : 1);
      }
      int status = 0;
      waitpid(child, &status, 0);
      if (status != 0) return fail("the child was not refused");
    }
    if (ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comm, nullptr) != ncclSuccess || x != 2)
      return fail("all-reduce");
    return ncclCommDestroy(comm) == ncclSuccess ? 0 : 1;
  });
  CHECK(endings == Endings{0, 0});
}

TEST_CASE("buffers of ncclMemAlloc are read in place by other processes") {
  Endings endings = run_processes(3, [](int rank, ncclUniqueId id) {
    ncclComm_t comm = nullptr;
    if (ncclCommInitRank(&comm, 3, id, rank) != ncclSuccess) return fail("init");
    const std::size_t count = 3 << 20;
    for (int round = 0; round < 3; ++round) {  // new buffers every time
      void *in = nullptr, *out = nullptr;
      if (ncclMemAlloc(&in, count * 4) != ncclSuccess || ncclMemAlloc(&out, count * 4) != ncclSuccess)
        return fail("alloc");
      auto* x = static_cast<float*>(in);
      auto* y = static_cast<float*>(out);
      for (std::size_t i = 0; i < count; ++i)
        x[i] = static_cast<float>(i % 100) + static_cast<float>(rank + round);
      if (ncclAllReduce(x, y, count, ncclFloat, ncclSum, comm, nullptr) != ncclSuccess)
        return fail("all-reduce");
      for (std::size_t i = 0; i < count; ++i)
        if (y[i] != static_cast<float>(3 * (i % 100)) + static_cast<float>(3 + 3 * round))
          return fail("wrong sum");
      ncclMemFree(in);
      ncclMemFree(out);
    }
    return ncclCommDestroy(comm) == ncclSuccess ? 0 : 1;
  });
  CHECK(endings == Endings{0, 0, 0});
}

TEST_CASE("ranks may differ in how they deliver: in place through slots, else by single copy") {
  for (const char* from : {"64K", "never"}) {
    Endings endings = run_processes(3, [from](int rank, ncclUniqueId id) {
      setenv("TUTTI_SINGLE_COPY", from, 1);
      ncclComm_t comm = nullptr;
      if (ncclCommInitRank(&comm, 3, id, rank) != ncclSuccess) return fail("init");
      // Several fetched messages of several slices each, and a short rest.
      constexpr std::size_t kBlock = (5U << 19) + 20'001;
      std::vector<std::uint8_t> in(3 * kBlock), out(3 * kBlock);
      auto value = [](int source, int destination, std::size_t i) {  // no slice is like another
        auto block = static_cast<std::size_t>(source) * 3 + static_cast<std::size_t>(destination);
        return static_cast<std::uint8_t>((block * kBlock + i) * 2'654'435'761U >> 24);
      };
      bool in_place = rank == 1;
      for (int round = 0; round < 3; ++round) {
        std::vector<std::uint8_t>& sent = in_place ? out : in;
        for (std::size_t i = 0; i < sent.size(); ++i)
          sent[i] = value(rank, static_cast<int>(i / kBlock), i % kBlock);
        if (ncclAlltoAll(sent.data(), out.data(), kBlock, ncclUint8, comm, nullptr) != ncclSuccess)
          return fail("ncclAlltoAll");
        for (std::size_t i = 0; i < out.size(); ++i)
          if (out[i] != value(static_cast<int>(i / kBlock), rank, i % kBlock)) return fail("wrong byte");
      }
      return ncclCommDestroy(comm) == ncclSuccess ? 0 : fail("destroy");
    });
    CHECK(endings == Endings{0, 0, 0});
  }
}

TEST_CASE("making and destroying communicators leaves no descriptors, threads or memory behind") {
  Endings endings = run_processes(2, [](int rank, ncclUniqueId id) {
    ncclComm_t base = nullptr;
    if (ncclCommInitRank(&base, 2, id, rank) != ncclSuccess) return fail("init");
    std::size_t files = 0, threads = 0;
    for (int k = 0; k < 60; ++k) {
      ncclComm_t part = nullptr;
      if (ncclCommSplit(base, 0, rank, &part, nullptr) != ncclSuccess) return fail("split");
      int x = 1;
      if (ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, part, nullptr) != ncclSuccess || x != 2)
        return fail("use");
      if (ncclCommDestroy(part) != ncclSuccess) return fail("destroy");
      if (k == 9) {
        files = files_in("/proc/self/fd").size();
        threads = files_in("/proc/self/task").size();
      }
    }
    bool flat =
        files_in("/proc/self/fd").size() <= files + 8 && files_in("/proc/self/task").size() <= threads;
    return ncclCommDestroy(base) == ncclSuccess && flat ? 0 : fail("something was left behind");
  });
  CHECK(endings == Endings{0, 0});
}
