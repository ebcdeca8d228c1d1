// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/model_states.hpp"

#include <algorithm>
#include <cstring>

namespace trainer {

namespace {
// Shards start at cache lines.
constexpr Index kAlignment = 16;
}  // namespace

struct ModelStates::Bucket {
  std::size_t first_unit = 0, unit_count = 0;
  Index used = 0, count = 0, shard = 0;  // elements: without padding, with it, of one rank's shard
  Index own = 0;                         // first element of this rank's shard
  std::size_t missing = 0;               // units whose gradients of this micro-batch are not there yet
  bool holds = false;                    // a shard of gradients of this step (stages 2 and 3)
  Array parameters, gradients, master, m, v;
  Array gathered;  // stage 3: while in use
  Event gathering;
  int users = 0;
  Array whole_gradients;  // stages 2 and 3: of one micro-batch
};

ModelStates::ModelStates(Memory& memory, Type type, std::span<const UnitLayout> units, Groups groups,
                         ZeroStage stage, Index bucket_bytes, int servers)
    : memory_(memory), type_(type), units_(units), groups_(groups), stage_(stage) {
  // Stage 3 gathers a bucket when one unit of it is used, so that a bucket is one unit there.
  if (stage == ZeroStage::Parameters || servers > 0) bucket_bytes = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (buckets_.empty() || buckets_.back().used * size_of(type) >= bucket_bytes)
      buckets_.emplace_back().first_unit = u;
    Bucket& bucket = buckets_.back();
    places_.push_back({buckets_.size() - 1, bucket.used});
    bucket.used += units_[u].count();
    ++bucket.unit_count;
  }
  const Index ranks = servers > 0 ? servers : groups_.reduce.size(), rank = groups_.reduce.rank();
  for (Bucket& b : buckets_) {
    b.shard = (b.used + ranks * kAlignment - 1) / (ranks * kAlignment) * kAlignment;
    b.count = b.shard * ranks;
    b.own = shards(ZeroStage::Optimizer) ? rank * b.shard : 0;
    b.missing = b.unit_count;
    Index owned = shards(ZeroStage::Optimizer) ? b.shard : b.count;
    b.parameters = Array(memory, Use::Parameters, type, shards(ZeroStage::Parameters) ? b.shard : b.count);
    b.gradients = Array(memory, Use::Gradients, type, shards(ZeroStage::Gradients) ? b.shard : b.count);
    b.gradients.fill_zero();  // the padding is reduced too
    if (servers > 0) continue;
    if (type != Type::Float32) b.master = Array(memory, Use::OptimizerStates, Type::Float32, owned);
    b.m = Array(memory, Use::OptimizerStates, Type::Float32, owned);
    b.v = Array(memory, Use::OptimizerStates, Type::Float32, owned);
  }
}

ModelStates::~ModelStates() = default;

void ModelStates::load(const Source& source) {
  for (Bucket& b : buckets_) {
    Array values(memory_, Use::Workspace, Type::Float32, b.count);
    values.fill_zero();
    auto fill = [&](StateKind kind) {
      for (std::size_t u = b.first_unit; u < b.first_unit + b.unit_count; ++u)
        source(kind, units_[u], values.floats() + places_[u].offset);
    };
    fill(StateKind::Weights);
    Index first = shards(ZeroStage::Parameters) ? b.own : 0;
    convert(Type::Float32, values.floats() + first, type_, b.parameters.data(), b.parameters.count());
    if (b.master) std::copy_n(values.floats() + b.own, b.master.count(), b.master.floats());
    for (auto [kind, array] : {std::pair(StateKind::FirstMoments, &b.m), {StateKind::SecondMoments, &b.v}}) {
      fill(kind);
      std::copy_n(values.floats() + b.own, array->count(), array->floats());
    }
  }
}

void ModelStates::start(std::uint64_t seed) {
  load([&](StateKind kind, const UnitLayout& unit, float* values) {
    if (kind == StateKind::Weights)
      unit.start_values(seed, values);
    else
      std::fill_n(values, unit.count(), 0.0F);
  });
}

void ModelStates::prefetch(std::size_t unit) {
  Bucket& b = buckets_[places_[unit].bucket];
  if (!shards(ZeroStage::Parameters) || b.gathered) return;
  b.gathered = Array(memory_, Use::Workspace, type_, b.count);
  if (groups_.gather.size() == 1)
    std::memcpy(b.gathered.data(), b.parameters.data(), static_cast<std::size_t>(b.parameters.bytes()));
  groups_.gather.all_gather(type_, b.parameters.data(), b.gathered.data(), b.shard, &gather_stream_);
  b.gathering = gather_stream_.record();
}

const void* ModelStates::acquire(std::size_t unit) {
  Bucket& b = buckets_[places_[unit].bucket];
  if (!shards(ZeroStage::Parameters)) return b.parameters.at(places_[unit].offset);
  prefetch(unit);
  groups_.gather.wait(gather_stream_, b.gathering);
  ++b.users;
  return b.gathered.at(places_[unit].offset);
}

void ModelStates::release(std::size_t unit) {
  Bucket& b = buckets_[places_[unit].bucket];
  if (shards(ZeroStage::Parameters) && --b.users == 0) b.gathered.release();
}

UnitGradient ModelStates::gradient(std::size_t unit) {
  Place& place = places_[unit];
  Bucket& b = buckets_[place.bucket];
  if (!shards(ZeroStage::Gradients)) return {b.gradients.at(place.offset), place.holds};
  if (!b.whole_gradients) {
    b.whole_gradients = Array(memory_, Use::Workspace, type_, b.count);
    std::memset(b.whole_gradients.at(b.used), 0,
                static_cast<std::size_t>((b.count - b.used) * size_of(type_)));
  }
  return {b.whole_gradients.at(place.offset), false};
}

void ModelStates::done(std::size_t unit, bool last) {
  places_[unit].holds = true;
  // Chunks of a pipeline may be at different micro-batches: only the last one's count is the same for all.
  if (!last && !shards(ZeroStage::Gradients)) return;
  Bucket& b = buckets_[places_[unit].bucket];
  if (--b.missing > 0) return;
  b.missing = b.unit_count;
  reduce(places_[unit].bucket);
}

void ModelStates::reduce(std::size_t bucket) {
  Bucket& b = buckets_[bucket];
  RankGroup& group = groups_.reduce;
  if (push_) {
    push_(bucket);
  } else if (shards(ZeroStage::Gradients)) {
    // One micro-batch at a time, for there is no room for the whole gradient between them.
    Reduction reduction{
        bucket, std::move(b.whole_gradients), Array(memory_, Use::Workspace, type_, b.shard), {}};
    if (group.size() == 1)
      std::memcpy(reduction.part.data(), reduction.whole.data(),
                  static_cast<std::size_t>(reduction.part.bytes()));
    group.reduce_scatter(type_, reduction.whole.data(), reduction.part.data(), b.shard, &reduce_stream_);
    reduction.event = reduce_stream_.record();
    reductions_.push_back(std::move(reduction));
    // Two under way keep the stream busy; more would only hold memory.
    while (reductions_.size() > 2) finish_oldest_reduction();
  } else if (shards(ZeroStage::Optimizer)) {
    group.reduce_scatter(type_, b.gradients.data(), b.gradients.at(b.own), b.shard, &reduce_stream_);
  } else {
    group.all_reduce(type_, b.gradients.data(), b.count, &reduce_stream_);
  }
}

void ModelStates::finish_oldest_reduction() {
  Reduction& oldest = reductions_.front();
  groups_.reduce.wait(reduce_stream_, oldest.event);
  Bucket& b = buckets_[oldest.bucket];
  if (b.holds)
    add(type_, b.gradients.data(), oldest.part.data(), b.gradients.data(), b.shard);
  else
    std::memcpy(b.gradients.data(), oldest.part.data(), static_cast<std::size_t>(b.gradients.bytes()));
  b.holds = true;
  reductions_.pop_front();
}

void ModelStates::wait_for_gradients() {
  while (!reductions_.empty()) finish_oldest_reduction();
  groups_.reduce.synchronize(reduce_stream_);
}

void ModelStates::for_each_owned(const std::function<void(const Owned&)>& f) {
  for (Bucket& b : buckets_) {
    const Index first = b.own, end = b.own + b.m.count();  // nothing where servers own it
    for (std::size_t u = b.first_unit; u < b.first_unit + b.unit_count; ++u)
      for (const LocalParameter& parameter : units_[u].parameters()) {
        Index begin = std::max(first, places_[u].offset + parameter.offset);
        Index stop = std::min(end, places_[u].offset + parameter.offset + parameter.count());
        if (begin >= stop) continue;
        Index in_shard = begin - b.own;
        void* gradient = b.gradients.at(shards(ZeroStage::Gradients) ? in_shard : begin);
        float* weights = b.master
                             ? b.master.floats() + in_shard
                             : b.parameters.floats() + (shards(ZeroStage::Parameters) ? in_shard : begin);
        f({u, parameter, begin - places_[u].offset - parameter.offset, stop - begin, gradient, weights,
           b.m.floats() + in_shard, b.v.floats() + in_shard});
      }
  }
}

void ModelStates::for_each_owned_run(const std::function<void(const Owned&, Index, Index, Index)>& f) {
  for_each_owned([&](const Owned& owned) {
    const Index begin = owned.parameter.offset + owned.first, end = begin + owned.count;
    units_[owned.unit].for_each_run(owned.parameter, [&](Index place, Index number, Index length) {
      const Index from = std::max(place, begin), to = std::min(place + length, end);
      if (from < to) f(owned, number + from - place, from - begin, to - from);
    });
  });
}

void ModelStates::update(const AdamW& how) {
  for_each_owned([&](const Owned& owned) {
    AdamW with_decay = how;
    if (!owned.parameter.spec->decays) with_decay.decay = 0;
    adamw(type_, with_decay, owned.gradient, owned.weights, owned.m, owned.v, owned.count);
  });
}

void ModelStates::publish() {
  for (Bucket& b : buckets_) {
    void* own = b.parameters.at(shards(ZeroStage::Parameters) ? 0 : b.own);
    if (b.master) convert(Type::Float32, b.master.floats(), type_, own, b.master.count());
    if (stage_ == ZeroStage::Optimizer || stage_ == ZeroStage::Gradients)
      groups_.reduce.all_gather(type_, own, b.parameters.data(), b.shard, &reduce_stream_);
  }
  groups_.reduce.synchronize(reduce_stream_);
  forget_gradients();
}

void ModelStates::forget_gradients() {
  for (Bucket& b : buckets_) b.holds = false;
  for (Place& place : places_) place.holds = false;
}

std::size_t ModelStates::bucket_count() const { return buckets_.size(); }

Index ModelStates::shard_count(std::size_t bucket) const { return buckets_[bucket].shard; }

void* ModelStates::parameter_shard(std::size_t bucket, int server) {
  Bucket& b = buckets_[bucket];
  return b.parameters.at(shards(ZeroStage::Parameters) ? 0 : server * b.shard);
}

void* ModelStates::gradient_shard(std::size_t bucket, int server) {
  Bucket& b = buckets_[bucket];
  return b.gradients.at(shards(ZeroStage::Gradients) ? 0 : server * b.shard);
}

Index ModelStates::count() const {
  Index sum = 0;
  for (const Bucket& b : buckets_) sum += b.used;
  return sum;
}

Index ModelStates::padded_count() const {
  Index sum = 0;
  for (const Bucket& b : buckets_) sum += b.count;
  return sum;
}

}  // namespace trainer
