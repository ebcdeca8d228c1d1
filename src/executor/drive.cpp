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
using Clock = std::chrono::steady_clock;
// Stepping aside for the ranks that share this core is worth this much time without progress, no more: then
// something else has the core, and only a sleeper is put back before that is through with its time slice.
constexpr std::chrono::microseconds kSteppingAside{100};
constexpr milliseconds kLook{20};      // between two looks at a stalled operation
constexpr int kPollsBetweenLooks = 8;  // at who else could use this core

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

std::vector<int> files_of(std::span<Work* const> works) {
  std::vector<int> files;
  for (Work* work : works)
    if (!work->done() && work->poll_file() >= 0) files.push_back(work->poll_file());
  return files;
}

bool should_make_way(std::span<Work* const> works, int polls) {
  return std::ranges::any_of(works, [&](const Work* work) { return work->should_make_way(polls); });
}

milliseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}

// Until all are done, or none has moved for as many polls as the most patient of them asks, or polling does
// not help.
void poll(std::span<Work* const> works, bool& all_done) {
  int spins = 0;
  for (Work* work : works) spins = std::max(spins, work->spins());
  for (int idle = 0; idle <= spins;) {
    bool moved = progress_all(works, all_done);
    if (all_done) return;
    if (moved) {
      idle = 0;
      continue;
    }
    if (idle++ % kPollsBetweenLooks == 0 && should_make_way(works, idle)) return;
    relax();
  }
}

// Where ranks share this core, the one that is waited for is likely to be next in line: stepping aside costs
// less than sleeping and being woken. True when something has moved.
bool step_aside(std::span<Work* const> works, bool& all_done) {
  auto start = Clock::now();
  do {
    sched_yield();
    if (progress_all(works, all_done)) return true;
  } while (Clock::now() - start < kSteppingAside);
  return false;
}

void sleep_until_moved(std::span<Work* const> works, bool& all_done) {
  auto start = Clock::now();
  while (!all_done) {
    std::vector<Doorbell> bells = bells_of(works);
    std::vector<int> files = files_of(works);
    Sleep sleep(bells, files);
    for (Work* work : works) work->take_events();  // what they tell of is found by the look that follows
    if (progress_all(works, all_done) || all_done) return;
    sleep.wait(kLook);
    if (milliseconds waited = since(start); waited >= kLook)
      for (Work* work : works)
        if (!work->done()) work->stalled(waited);
  }
}

}  // namespace

bool poll(Execution& execution, int spins) {
  for (int idle = 0; idle <= spins; ++idle) {
    if (execution.progress()) idle = 0;
    if (execution.done()) return true;
    relax();
  }
  return false;
}

void drive(std::span<Work* const> works) {
  bool all_done = false;
  while (poll(works, all_done), !all_done)
    if (!step_aside(works, all_done)) sleep_until_moved(works, all_done);
}

}  // namespace tutti
