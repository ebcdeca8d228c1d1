// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <chrono>
#include <span>

#include "executor/execution.hpp"
#include "transport/doorbell.hpp"

namespace tutti {

/// Something that one thread works off together with others of its kind.
class Work {
 public:
  virtual ~Work() = default;
  /// Does what can be done now; true if anything moved. Does not throw: what fails is done.
  virtual bool progress() = 0;
  virtual bool done() const = 0;
  /// Called now and then while nothing moves, with the time since something did: the place for what is too
  /// slow to look at in every turn.
  virtual void stalled(std::chrono::milliseconds since) = 0;
  /// Rung when there may be something to do.
  virtual Doorbell bell() const = 0;
  /// A descriptor that is readable when there may be something to do that nobody rings for; -1: none.
  virtual int poll_file() const = 0;
  /// Takes the events that made it readable.
  virtual void take_events() = 0;
  /// Polls in vain before the thread may sleep.
  virtual int spins() const = 0;
  /// Whether somebody else has better use for this core than polling, after so many polls in vain.
  virtual bool should_make_way(int polls) const = 0;
};

/// The short way: one execution, for as many polls in vain. Whether it is done. Throws what it throws.
bool poll(Execution& execution, int spins);

/// Blocks until all are done: spins for as long as the most patient of them asks, then sleeps on their bells.
void drive(std::span<Work* const> works);

}  // namespace tutti
