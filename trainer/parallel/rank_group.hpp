// SPDX-License-Identifier: BSD-3-Clause
//
// The room of the strategies: who holds which part of the model and of the batch, and what travels between
// them. It knows Tutti by its public headers alone.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <tutti/communicator.hpp>
#include <vector>

#include "measure/timeline.hpp"
#include "model/tensor.hpp"

namespace trainer {

/// Numbers: all-reduces of a few single numbers (losses, norms), which are kept apart from those of arrays.
enum class Collective : std::uint8_t { AllReduce, ReduceScatter, AllGather, SendReceive, Numbers };
inline constexpr std::size_t kCollectiveCount = 5;
const char* name_of(Collective collective);

/// What one rank has sent in one group of ranks, and how long it stood waiting for it. `sent` is what a ring
/// sends per rank: 2 (n-1)/n of the bytes of an all-reduce, (n-1)/n of the whole of a reduce-scatter or
/// all-gather.
struct Traffic {
  struct Entry {
    Index calls = 0;
    double sent = 0;  ///< bytes
  };
  std::array<Entry, kCollectiveCount> entries{};
  double blocked = 0;  ///< seconds

  Entry& operator[](Collective collective) { return entries[static_cast<std::size_t>(collective)]; }
  const Entry& operator[](Collective collective) const {
    return entries[static_cast<std::size_t>(collective)];
  }
  double sent() const;
};

/// Something queued on a Stream.
using Event = std::shared_ptr<std::atomic<bool>>;

/// Counts events, for who waits for any of several streams.
using Bell = std::shared_ptr<std::atomic<std::uint64_t>>;

/// A host stream whose queued work can be waited for in part.
class Stream {
 public:
  cudaStream_t get() const { return stream_.get(); }
  /// Done when all that was queued before is; rings the bell then, if there is one.
  Event record(const Bell& bell = nullptr);
  /// Blocks; throws tutti::Exception when something on the stream failed.
  void wait(const Event& event);
  void synchronize() { stream_.synchronize(); }

 private:
  tutti::Stream stream_;
};

/// One rank's end of a communicator, with arrays of any Type, counting what it sends. With one rank every
/// call is nothing. Without a stream calls block; else the arrays must stay until the stream has come by.
class RankGroup {
 public:
  RankGroup() = default;  ///< a group of one
  /// `name` says in timelines who is waited for; it and the timeline must outlive the group.
  RankGroup(tutti::Communicator communicator, const char* name, Timeline* timeline);

  /// Counts waits on another timeline from now on.
  void watch(Timeline& timeline) { timeline_ = &timeline; }

  int rank() const { return rank_; }
  int size() const { return size_; }
  Traffic& traffic() { return traffic_; }
  const Traffic& traffic() const { return traffic_; }

  /// In place; the second one for single numbers.
  void all_reduce(Type type, void* data, Index count, const Stream* stream = nullptr);
  void all_reduce(double* data, Index count, ncclRedOp_t op = ncclSum);
  void maximum(float* data, Index count);
  /// `part` of count elements is this rank's sum; `whole` has size() times as many and may contain it in its
  /// place.
  void reduce_scatter(Type type, const void* whole, void* part, Index count, const Stream* stream = nullptr);
  void all_gather(Type type, const void* part, void* whole, Index count, const Stream* stream = nullptr);
  void send(Type type, const void* data, Index count, int to, const Stream* stream = nullptr);
  void receive(Type type, void* data, Index count, int from, const Stream* stream = nullptr);
  /// Every rank's text, by rank, on rank 0; nothing on the others. Blocks. Not counted.
  std::vector<std::string> gather(const std::string& text) const;

  /// Blocks until what was queued on the stream before `event`, or all, is done; counted as waiting for the
  /// group.
  void wait(Stream& stream, const Event& event);
  void synchronize(Stream& stream);

  const tutti::Communicator& communicator() const { return communicator_; }
  const char* name() const { return name_; }

 private:
  template <class Call>
  void timed(Call call);
  template <class Call>
  void run(Collective collective, double sent, const Stream* stream, Call call);
  double ring_share() const { return static_cast<double>(size_ - 1) / size_; }

  tutti::Communicator communicator_;
  const char* name_ = "";
  Timeline* timeline_ = nullptr;
  int rank_ = 0, size_ = 1;
  Traffic traffic_;
};

}  // namespace trainer
