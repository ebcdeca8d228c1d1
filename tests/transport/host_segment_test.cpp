// SPDX-License-Identifier: BSD-3-Clause
#include "transport/host_segment.hpp"

#include <unistd.h>

#include <csignal>
#include <memory>

#include "support/catch.hpp"

using namespace tutti;

namespace {

RankBoard board;
volatile std::sig_atomic_t looks, whole, mixed;

// Looks at the board between two instructions of put(), as another rank does while this one is kept from
// running.
void look(int) {
  looks = looks + 1;
  if (auto header = board.calls[0].get()) {
    whole = whole + 1;
    if (header->count != header->call * 3) mixed = mixed + 1;
  }
}

}  // namespace

TEST_CASE("a call on the notice board is seen whole or not at all") {
  struct sigaction action = {}, before;
  action.sa_handler = look;
  REQUIRE(sigaction(SIGVTALRM, &action, &before) == 0);
  itimerspec period{.it_interval = {0, 20'000}, .it_value = {0, 20'000}};
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;  // this thread alone: another one would race with it for the counters
  event.sigev_signo = SIGVTALRM;
  event._sigev_un._tid = gettid();
  timer_t timer;
  REQUIRE(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
  REQUIRE(timer_settime(timer, 0, &period, nullptr) == 0);
  for (std::uint64_t call = 1; looks < 5'000; ++call) board.calls[0].put({call, call * 3});
  timer_delete(timer);
  sigaction(SIGVTALRM, &before, nullptr);
  CHECK(whole > 0);
  CHECK(mixed == 0);
}
