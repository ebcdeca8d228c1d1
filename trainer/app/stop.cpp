// SPDX-License-Identifier: BSD-3-Clause
#include "app/stop.hpp"

#include <atomic>
#include <csignal>
#include <ctime>

namespace trainer {

namespace {

std::atomic<int> asked_by{0};
std::atomic<std::time_t> asked_at{0};

// Launchers pass on what a terminal has sent to all, so that one Ctrl-C comes as two signals.
void on_signal(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (asked_by != 0 && now.tv_sec > asked_at + 1) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  if (asked_by == 0) asked_at = now.tv_sec;
  asked_by = signal;
}

}  // namespace

void stop_on_signals() {
  for (int signal : {SIGINT, SIGTERM}) std::signal(signal, on_signal);
}

bool stops() { return asked_by != 0; }

bool any_rank_stops(RankGroup& ranks) {
  double count = stops() ? 1 : 0;
  ranks.all_reduce(&count, 1);
  return count > 0;
}

int stop_signal() { return asked_by == SIGTERM ? SIGTERM : SIGINT; }

}  // namespace trainer
