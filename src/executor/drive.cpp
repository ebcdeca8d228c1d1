// SPDX-License-Identifier: BSD-3-Clause
#include "executor/drive.hpp"

#include <sched.h>

#include <algorithm>
#include <vector>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace tutti {
namespace {

using std::chrono::milliseconds;
constexpr int kYields = 16;
constexpr milliseconds kLook{20};  // between two looks at a stalled operation

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool progress_all(std::span<Work* const> works, bool& all_done) {
  bool moved = false;
  all_done = true;
  for (Work* work : works) {
    if (work->done()) continue;
    if (work->progress()) moved = true;
    all_done = all_done && work->done();
  }
  return moved;
}

std::vector<Doorbell> bells_of(std::span<Work* const> works) {
  std::vector<Doorbell> bells;
  for (Work* work : works)
    if (!work->done()) bells.push_back(work->bell());
  return bells;
}

milliseconds since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
}

}  // namespace

void drive(std::span<Work* const> works) {
  bool all_done = false;
  while (!all_done) {
    int spins = 0;
    for (Work* work : works) spins = std::max(spins, work->spins());
    int idle = 0;
    while (!all_done && idle <= spins) {
      if (progress_all(works, all_done)) {
        idle = 0;
      } else {
        ++idle;
        relax();
      }
    }
    // Where ranks outnumber cores, the one that is waited for is likely to be next in line for this core:
    // stepping aside costs less than sleeping and being woken.
    for (int turn = 0; spins == 0 && turn < kYields && !all_done; ++turn) {
      sched_yield();
      if (progress_all(works, all_done)) turn = -1;
    }
    auto start = std::chrono::steady_clock::now();
    for (bool moved = false; !all_done && !moved;) {
      std::vector<Doorbell> bells = bells_of(works);
      Sleep sleep(bells);
      moved = progress_all(works, all_done);
      if (moved || all_done) break;
      sleep.wait(kLook);
      if (milliseconds waited = since(start); waited >= kLook)
        for (Work* work : works)
          if (!work->done()) work->stalled(waited);
    }
  }
}

}  // namespace tutti
