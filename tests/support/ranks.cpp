// SPDX-License-Identifier: BSD-3-Clause
#include "support/ranks.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <new>

namespace support {
namespace {

struct Board {
  std::atomic<int> ready;
  ncclUniqueId id;
};

int run_child(Board& board, int rank, const std::function<int(int, ncclUniqueId)>& body) {
  if (rank == 0) {
    if (ncclGetUniqueId(&board.id) != ncclSuccess) return 99;
    board.ready.store(1);
  }
  while (board.ready.load() == 0) std::this_thread::yield();
  try {
    return body(rank, board.id);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 98;
  }
}

}  // namespace

Endings run_processes(int ranks, const std::function<int(int, ncclUniqueId)>& body, int seconds) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* board = new (memory) Board{};
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      int code = run_child(*board, rank, body);
      std::fflush(nullptr);
      _exit(code);  // what the test framework would do at exit is the parent's business
    }
    children.push_back(child);
  }
  Endings endings(static_cast<std::size_t>(ranks), -1000);
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  for (std::size_t r = 0; r < children.size(); ++r) {
    int status = 0;
    pid_t got = 0;
    while ((got = waitpid(children[r], &status, WNOHANG)) == 0 && std::chrono::steady_clock::now() < deadline)
      usleep(1000);  // a poll, not a synchronization: the loop ends by the child's end or the deadline
    if (got == 0) {
      kill(children[r], SIGKILL);
      waitpid(children[r], &status, 0);
      continue;
    }
    endings[r] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  munmap(memory, sizeof(Board));
  return endings;
}

}  // namespace support
