// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "model/pass.hpp"
#include "parallel/rank_group.hpp"

namespace trainer {

/// How the model states are shared among data-parallel ranks; the stages of ZeRO (Rajbhandari et al. 2020).
enum class ZeroStage : std::uint8_t { None, Optimizer, Gradients, Parameters };

/// What a checkpoint keeps of a parameter: floats for AdamW.
enum class StateKind : std::uint8_t { Weights, FirstMoments, SecondMoments };
inline constexpr std::size_t kStateKindCount = 3;

/// The parameters, gradients and optimizer states of the units on one rank, and their way between the
/// data-parallel ranks.
///
/// Neighbouring units form buckets. A bucket's gradients are reduced on a stream as soon as the last of its
/// units has made them, while the backward pass goes on. Without ZeRO that is an all-reduce. With it each
/// rank owns one of size() equal shards of every bucket: gradients are reduce-scattered, the owner updates
/// its shard, and parameters are gathered: after the update (stages 1 and 2), or whenever a unit is used
/// (stage 3, where a bucket is a unit).
///
/// Where `servers` own the optimizer states (parallel/parameter_server.hpp) a bucket is a unit too, cut into
/// a shard for each server; gradients are handed to what was given to push_to().
class ModelStates {
 public:
  struct Groups {
    RankGroup& reduce;  ///< for gradients and for parameters after an update
    RankGroup& gather;  ///< for parameters in use (stage 3); the same ranks
  };
  /// One rank's piece of a parameter for the optimizer; weights, m and v are floats, gradient is of the type.
  struct Owned {
    std::size_t unit;
    const LocalParameter& parameter;
    Index first;  ///< element of the (local) parameter that the piece begins with
    Index count;
    void* gradient;
    float *weights, *m, *v;

    const float* state(StateKind kind) const {
      return kind == StateKind::Weights ? weights : kind == StateKind::FirstMoments ? m : v;
    }
  };

  /// `units` must outlive it. `bucket_bytes`: buckets close when they have as many bytes of gradients.
  ModelStates(Memory& memory, Type type, std::span<const UnitLayout> units, Groups groups, ZeroStage stage,
              Index bucket_bytes, int servers = 0);
  ~ModelStates();
  ModelStates(const ModelStates&) = delete;
  ModelStates& operator=(const ModelStates&) = delete;

  /// Fills in one state of all of a unit's parameters.
  using Source = std::function<void(StateKind, const UnitLayout&, float* values)>;
  /// Takes weights and optimizer states from `source`, which is asked for every unit.
  void load(const Source& source);
  /// Weights as training starts with them; optimizer states zero.
  void start(std::uint64_t seed);

  /// The unit's parameters, until release(unit). Stage 3 waits for their gathering here. Calls may nest.
  const void* acquire(std::size_t unit);
  void release(std::size_t unit);
  /// Stage 3: begins to gather what will be acquired next. All ranks must call in the same order.
  void prefetch(std::size_t unit);

  /// Where the backward pass writes the unit's gradients; they are complete for this micro-batch when done()
  /// is called. With `last` (micro-batch of the step) the reduction begins.
  UnitGradient gradient(std::size_t unit);
  void done(std::size_t unit, bool last);
  /// Waits until all reductions of this step are through.
  void wait_for_gradients();

  /// Calls f with everything this rank has to update; after wait_for_gradients().
  void for_each_owned(const std::function<void(const Owned&)>& f);
  /// The same, by stretches that lie side by side in the whole model, too: f(piece, number in the model,
  /// place in the piece, length).
  void for_each_owned_run(const std::function<void(const Owned&, Index, Index, Index)>& f);
  /// Updates all that this rank owns.
  void update(const AdamW& how);
  /// After an update: brings the weights to every rank that needs them. The next gradients
  /// start from nothing.
  void publish();
  /// The next gradients start from nothing (publish() says so too): for a step that is skipped.
  void forget_gradients();

  /// Of a worker: `push` is called with each bucket whose gradients are complete for the step.
  void push_to(std::function<void(std::size_t)> push) { push_ = std::move(push); }
  /// A server's shard of a bucket, which on the server itself is all that it has. Arrays of shard_count().
  std::size_t bucket_count() const;
  Index shard_count(std::size_t bucket) const;
  void* parameter_shard(std::size_t bucket, int server);
  void* gradient_shard(std::size_t bucket, int server);

  Index count() const;         ///< elements on this rank before sharding, without padding
  Index padded_count() const;  ///< with it
  ZeroStage stage() const { return stage_; }

 private:
  struct Bucket;
  struct Place {
    std::size_t bucket;
    Index offset;        ///< of the unit in its bucket
    bool holds = false;  ///< a gradient of this step
  };
  struct Reduction {  ///< of stages 2 and 3, under way
    std::size_t bucket;
    Array whole, part;
    Event event;
  };

  bool shards(ZeroStage what) const { return stage_ >= what; }
  void reduce(std::size_t bucket);
  void finish_oldest_reduction();

  Memory& memory_;
  Type type_;
  std::span<const UnitLayout> units_;
  Groups groups_;
  ZeroStage stage_;
  std::function<void(std::size_t)> push_;
  std::vector<Place> places_;
  std::vector<Bucket> buckets_;
  std::deque<Reduction> reductions_;
  Stream reduce_stream_, gather_stream_;
};

}  // namespace trainer
