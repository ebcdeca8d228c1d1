// SPDX-License-Identifier: BSD-3-Clause
//
// Parameter servers (Li et al. 2014): some ranks keep the optimizer states and update the weights, the others
// compute gradients, push them to the servers and pull weights. Every server owns an equal shard of every
// unit.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "optimizer/learning.hpp"
#include "parallel/link.hpp"
#include "parallel/model_states.hpp"

namespace trainer {

/// Synchronous: an update takes the sum of all workers' gradients, as data parallelism does. Asynchronous
/// (Dean et al. 2012): each worker's gradient is applied when it comes; the weights may have been updated for
/// other workers since they were pulled.
enum class ServerMode : std::uint8_t { None, Synchronous, Asynchronous };
/// "sync" or "async"; throws Error otherwise.
ServerMode server_mode_from(const std::string& name);

/// The ranks of a job with servers, which are its last ones; the others are workers.
class ServedWorld {
 public:
  /// Collective over the world, which must have workers + servers ranks. The timeline must outlive it.
  ServedWorld(int workers, int servers, RankGroup world, Timeline& timeline);

  /// Counts waits for the other kind on another timeline from now on.
  void watch(Timeline& timeline);

  bool is_server() const { return world.rank() >= workers; }
  int index() const { return is_server() ? world.rank() - workers : world.rank(); }

  int workers, servers;
  RankGroup world;
  tutti::Communicator own;  ///< of the workers among themselves, or of the servers; for who uses it to take
  /// Pairs with each of the other kind, by its index: what gradients travel through, and weights.
  std::vector<RankGroup> gradients, weights;
};

/// A worker's way to the servers.
class ServerClient {
 public:
  struct Reply {
    double gradient_norm;  ///< of what the update was made with, before clipping
    double staleness;      ///< updates for other workers between pull and push, mean over the servers
  };

  /// All must outlive it; `states` was made for `served.servers` servers.
  ServerClient(ServedWorld& served, ServerMode mode, ModelStates& states, Memory& memory, Type type);

  /// After the backward pass: waits until the update is made and pulls the new weights.
  Reply exchange();
  /// Asynchronous: tells the servers that nothing more comes from this worker, waits until that is so of all,
  /// and pulls the weights.
  void finish();

 private:
  void push(std::size_t bucket);
  Reply pull();
  void send_header(double squares, bool goes_on);

  ServerMode mode_;
  ModelStates& states_;
  Type type_;
  std::vector<std::array<float, 2>> headers_, replies_;     // by server; they stay while they travel
  std::vector<std::unique_ptr<Link>> gradients_, weights_;  // by server
};

/// A rank that serves.
class ParameterServer {
 public:
  /// How often a gradient was applied with so many updates for other workers since its weights were pulled;
  /// the last counts all above.
  using Staleness = std::array<double, 17>;

  /// Collective over the servers. All must outlive it. `layouts` are all units of the model.
  ParameterServer(ServedWorld& served, const LearningOptions& learning, Index steps, Type type,
                  std::span<const UnitLayout> layouts, Timeline& timeline);

  /// Weights as training starts with them.
  void start(std::uint64_t seed) { states_.start(seed); }
  /// Goes on after `updates` updates.
  void resume(const ModelStates::Source& source, Index updates) {
    states_.load(source);
    updates_ = updates;
  }

  /// Synchronous: one update with every worker's gradients.
  void step(Index step);
  /// Asynchronous: updates until all workers have finished.
  void serve();

  ModelStates& states() { return states_; }
  const Memory& memory() const { return memory_; }
  Index updates() const { return updates_; }
  const Staleness& staleness() const { return staleness_; }

 private:
  void expect_gradients(std::size_t worker);
  /// Into this server's shards, or added to what is there.
  void take_gradients(std::size_t worker, bool adds);
  void update(double norm, float rate);
  void reply(std::size_t worker, double norm, double staleness);
  std::size_t any_worker_with_message();

  ServedWorld& served_;
  const LearningOptions& learning_;
  Index steps_;
  Type type_;
  Timeline& timeline_;
  Memory memory_;
  RankGroup group_, gather_;  // the servers; nothing is gathered
  ModelStates states_;
  Bell bell_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::vector<std::array<float, 2>> replies_;
  std::vector<std::unique_ptr<Link>> gradients_, weights_;  // by worker
  std::vector<bool> finished_;
  Index updates_ = 0;
  Staleness staleness_{};
};

}  // namespace trainer
