// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "communicator/communicator.hpp"
#include "executor/drive.hpp"

namespace tutti {

/// The operations of one group (or one call) on one communicator, under way: a chain of its collectives in
/// order, and a chain per peer and direction of its sends and receives; chains go on side by side. Reused
/// from turn to turn, so that a warm call allocates nothing.
class Batch final : public Work {
 public:
  explicit Batch(Communicator& communicator);

  /// Within a turn. `operations` must stay until done.
  void start(std::span<const Operation> operations);
  /// Within a turn: one operation whose plan is known, from its start to its end. Throws what ended it early.
  void run(const Operation& operation, const Plan& plan);
  bool progress() override;
  bool done() const override { return unfinished_ == 0; }
  void stalled(std::chrono::milliseconds since) override;
  Doorbell bell() const override { return communicator_.bell(); }
  int poll_file() const override { return communicator_.poll_file(); }
  void take_events() override { communicator_.take_events(); }
  int spins() const override { return communicator_.spins(); }
  bool should_make_way(int polls) const override;
  /// Throws what ended the batch before its time, if anything has, once the buffers are the caller's again.
  void throw_error();

 private:
  struct Chain {
    std::vector<const Operation*> operations;
    std::size_t next = 0;  // operations before it have been started
    Execution execution;
    int peer = -1;  // of sends and receives
    Collective direction = Collective::all_reduce;
  };
  void reset();
  Chain& next_chain(const Operation& first);
  void adopt(const Operation& operation);
  Chain& chain_for(const Operation& operation);
  bool start_next(Chain& chain);
  void end_with_error();
  void end_with_mismatch(const CallMismatch& mismatch);
  bool waits_for_collective() const;
  std::optional<int> blocker_that_left() const;
  std::string waits_in_words() const;

  Communicator& communicator_;
  std::vector<std::unique_ptr<Chain>> chains_;
  std::size_t used_ = 0;
  std::size_t unfinished_ = 0;  // chains
  bool warned_ = false;
  std::exception_ptr error_;
};

/// Executes batches of several communicators together on the calling thread; blocks until all are done. Each
/// has had a ticket issued. Throws the first error after all have ended.
struct Launch {
  std::shared_ptr<Communicator> communicator;
  std::uint64_t ticket = 0;
  std::vector<Operation> operations;
};
void execute(std::span<const Launch> launches);
void execute(const Launch& launch);

/// The short way for one operation on the calling thread.
void execute(Communicator& communicator, const Operation& operation);
/// The shortest: if the operation is like the communicator's last of its kind, so that nothing about it needs
/// to be checked or chosen anew. False: nothing was done.
bool execute_repeated(Communicator& communicator, const Operation& operation);

}  // namespace tutti
