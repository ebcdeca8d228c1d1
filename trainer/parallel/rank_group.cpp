// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/rank_group.hpp"

namespace trainer {

namespace {

ncclDataType_t nccl_type(Type type) {
  switch (type) {
    case Type::Float32:
      return ncclFloat32;
    case Type::Bfloat16:
      return ncclBfloat16;
    case Type::Float16:
      return ncclFloat16;
  }
  return ncclFloat32;
}

}  // namespace

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::AllReduce:
      return "all-reduce";
    case Collective::ReduceScatter:
      return "reduce-scatter";
    case Collective::AllGather:
      return "all-gather";
    case Collective::SendReceive:
      return "send/receive";
    case Collective::Numbers:
      return "single numbers";
  }
  return "?";
}

double Traffic::sent() const {
  double sum = 0;
  for (const Entry& entry : entries) sum += entry.sent;
  return sum;
}

Event Stream::record(const Bell& bell) {
  struct Mark {
    Event event;
    Bell bell;
  };
  auto done = std::make_shared<std::atomic<bool>>(false);
  // The callback owns references of its own: whoever waits may have given up by then.
  auto* held = new Mark{done, bell};
  auto mark = [](void* argument) {
    std::unique_ptr<Mark> own(static_cast<Mark*>(argument));
    own->event->store(true);
    own->event->notify_all();
    if (!own->bell) return;
    own->bell->fetch_add(1);
    own->bell->notify_all();
  };
  ncclResult_t result = tuttiStreamAddCallback(stream_.get(), mark, held);
  if (result != ncclSuccess) delete held;
  tutti::check(result);
  return done;
}

void Stream::wait(const Event& event) {
  event->wait(false);
  ncclResult_t state = tuttiStreamQuery(stream_.get());
  if (state != ncclSuccess && state != ncclInProgress) stream_.synchronize();
}

RankGroup::RankGroup(tutti::Communicator communicator, const char* name, Timeline* timeline)
    : communicator_(std::move(communicator)),
      name_(name),
      timeline_(timeline),
      rank_(communicator_.rank()),
      size_(communicator_.size()) {}

template <class Call>
void RankGroup::timed(Call call) {
  const double before = timeline_->seconds(Activity::Wait);
  timeline_->during(Activity::Wait, name_, -1, -1, call);
  traffic_.blocked += timeline_->seconds(Activity::Wait) - before;
}

template <class Call>
void RankGroup::run(Collective collective, double sent, const Stream* stream, Call call) {
  if (size_ == 1) return;
  if (stream == nullptr)
    timed([&] { tutti::check(call(communicator_.get(), nullptr)); });
  else
    tutti::check(call(communicator_.get(), stream->get()));
  traffic_[collective].calls += 1;
  traffic_[collective].sent += sent;
}

void RankGroup::wait(Stream& stream, const Event& event) {
  if (size_ == 1) return;
  timed([&] { stream.wait(event); });
}

void RankGroup::synchronize(Stream& stream) {
  if (size_ == 1) return;
  timed([&] { stream.synchronize(); });
}

void RankGroup::all_reduce(Type type, void* data, Index count, const Stream* stream) {
  run(Collective::AllReduce, 2 * ring_share() * static_cast<double>(count * size_of(type)), stream,
      [&](ncclComm_t comm, cudaStream_t queue) {
        return ncclAllReduce(data, data, static_cast<std::size_t>(count), nccl_type(type), ncclSum, comm,
                             queue);
      });
}

void RankGroup::all_reduce(double* data, Index count, ncclRedOp_t op) {
  run(Collective::Numbers, 2 * ring_share() * static_cast<double>(count) * sizeof(double), nullptr,
      [&](ncclComm_t comm, cudaStream_t queue) {
        return ncclAllReduce(data, data, static_cast<std::size_t>(count), ncclFloat64, op, comm, queue);
      });
}

void RankGroup::maximum(float* data, Index count) {
  run(Collective::AllReduce, 2 * ring_share() * static_cast<double>(count) * sizeof(float), nullptr,
      [&](ncclComm_t comm, cudaStream_t queue) {
        return ncclAllReduce(data, data, static_cast<std::size_t>(count), ncclFloat32, ncclMax, comm, queue);
      });
}

void RankGroup::reduce_scatter(Type type, const void* whole, void* part, Index count, const Stream* stream) {
  run(Collective::ReduceScatter, static_cast<double>((size_ - 1) * count * size_of(type)), stream,
      [&](ncclComm_t comm, cudaStream_t queue) {
        return ncclReduceScatter(whole, part, static_cast<std::size_t>(count), nccl_type(type), ncclSum, comm,
                                 queue);
      });
}

void RankGroup::all_gather(Type type, const void* part, void* whole, Index count, const Stream* stream) {
  run(Collective::AllGather, static_cast<double>((size_ - 1) * count * size_of(type)), stream,
      [&](ncclComm_t comm, cudaStream_t queue) {
        return ncclAllGather(part, whole, static_cast<std::size_t>(count), nccl_type(type), comm, queue);
      });
}

void RankGroup::send(Type type, const void* data, Index count, int to, const Stream* stream) {
  run(Collective::SendReceive, static_cast<double>(count * size_of(type)), stream,
      [&](ncclComm_t comm, cudaStream_t queue) {
        return ncclSend(data, static_cast<std::size_t>(count), nccl_type(type), to, comm, queue);
      });
}

std::vector<std::string> RankGroup::gather(const std::string& text) const {
  if (size_ == 1) return {text};
  const auto ranks = static_cast<std::size_t>(size_);
  std::vector<std::uint64_t> lengths(ranks);
  const std::uint64_t own = text.size();
  tutti::check(ncclAllGather(&own, lengths.data(), 1, ncclUint64, communicator_.get(), nullptr));
  std::vector<std::string> all(rank_ == 0 ? ranks : 0);
  tutti::GroupScope together;
  tutti::check(ncclSend(text.data(), text.size(), ncclChar, 0, communicator_.get(), nullptr));
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].resize(lengths[r]);
    tutti::check(
        ncclRecv(all[r].data(), lengths[r], ncclChar, static_cast<int>(r), communicator_.get(), nullptr));
  }
  together.end();
  return all;
}

void RankGroup::receive(Type type, void* data, Index count, int from, const Stream* stream) {
  run(Collective::SendReceive, 0, stream, [&](ncclComm_t comm, cudaStream_t queue) {
    return ncclRecv(data, static_cast<std::size_t>(count), nccl_type(type), from, comm, queue);
  });
}

}  // namespace trainer
