// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/parameter_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/kernels.hpp"

namespace trainer {

namespace {

// Of a worker: sum of the squares of its gradient, whether one follows. Of a server: norm of the gradient
// that the update was made with, its staleness.
constexpr Index kHeaderCount = 2;

}  // namespace

ServerMode server_mode_from(const std::string& name) {
  if (name == "sync") return ServerMode::Synchronous;
  if (name == "async") return ServerMode::Asynchronous;
  throw Error(fmt::format("--ps {} is not known: choose sync or async", name));
}

ServedWorld::ServedWorld(int worker_count, int server_count, RankGroup all, Timeline& timeline)
    : workers(worker_count),
      servers(server_count),
      world(std::move(all)),
      own(world.communicator().split(is_server() ? 1 : 0, world.rank())),
      gradients(static_cast<std::size_t>(is_server() ? workers : servers)),
      weights(gradients.size()) {
  // A rank is in one part of a split: in each turn every worker pairs with another server.
  const int turns = std::max(workers, servers);
  for (int turn = 0; turn < turns; ++turn) {
    const int worker = is_server() ? (index() - turn + turns) % turns : index();
    const int server = (worker + turn) % turns;
    const bool meet = worker < workers && server < servers;
    const int color = meet ? worker * servers + server : NCCL_SPLIT_NOCOLOR;
    for (std::vector<RankGroup>* ways : {&gradients, &weights}) {
      tutti::Communicator pair = world.communicator().split(color, world.rank());
      if (meet)
        (*ways)[static_cast<std::size_t>(is_server() ? worker : server)] =
            RankGroup(std::move(pair), is_server() ? "workers" : "servers", &timeline);
    }
  }
}

void ServedWorld::watch(Timeline& timeline) {
  for (std::vector<RankGroup>* ways : {&gradients, &weights})
    for (RankGroup& group : *ways) group.watch(timeline);
}

ServerClient::ServerClient(ServedWorld& served, ServerMode mode, ModelStates& states, Memory& memory,
                           Type type)
    : mode_(mode),
      states_(states),
      type_(type),
      headers_(static_cast<std::size_t>(served.servers)),
      replies_(headers_.size()) {
  for (std::size_t s = 0; s < headers_.size(); ++s) {
    gradients_.push_back(std::make_unique<Link>(served.gradients[s], memory));
    weights_.push_back(std::make_unique<Link>(served.weights[s], memory));
  }
  // An asynchronous push begins with the gradient's norm, which is not known before the backward pass ends.
  states_.push_to(mode == ServerMode::Synchronous ? [this](std::size_t bucket) { push(bucket); }
                                                  : std::function([](std::size_t) {}));
}

void ServerClient::push(std::size_t bucket) {
  for (std::size_t s = 0; s < gradients_.size(); ++s)
    gradients_[s]->send(type_, states_.gradient_shard(bucket, static_cast<int>(s)),
                        states_.shard_count(bucket));
}

void ServerClient::send_header(double squares, bool goes_on) {
  for (std::size_t s = 0; s < gradients_.size(); ++s) {
    headers_[s] = {static_cast<float>(squares), goes_on ? 1.0F : 0.0F};
    gradients_[s]->send(Type::Float32, headers_[s].data(), kHeaderCount);
  }
}

ServerClient::Reply ServerClient::exchange() {
  const int servers = static_cast<int>(gradients_.size());
  if (mode_ == ServerMode::Asynchronous) {
    double squares = 0;
    for (std::size_t bucket = states_.bucket_count(); bucket-- > 0;)
      for (int s = 0; s < servers; ++s)
        squares += sum_of_squares(type_, states_.gradient_shard(bucket, s), states_.shard_count(bucket));
    send_header(squares, true);
    for (std::size_t bucket = states_.bucket_count(); bucket-- > 0;) push(bucket);
  }
  return pull();
}

ServerClient::Reply ServerClient::pull() {
  Reply reply{0, 0};
  for (std::size_t s = 0; s < weights_.size(); ++s) {
    weights_[s]->receive(Type::Float32, replies_[s].data(), kHeaderCount);
    for (std::size_t bucket = 0; bucket < states_.bucket_count(); ++bucket)
      weights_[s]->receive(type_, states_.parameter_shard(bucket, static_cast<int>(s)),
                           states_.shard_count(bucket));
  }
  for (std::size_t s = 0; s < weights_.size(); ++s) {
    gradients_[s]->finish();
    weights_[s]->finish();
    reply.gradient_norm = static_cast<double>(replies_[s][0]);
    reply.staleness += static_cast<double>(replies_[s][1]) / static_cast<double>(weights_.size());
  }
  states_.forget_gradients();
  return reply;
}

void ServerClient::finish() {
  send_header(0, false);
  pull();
}

ParameterServer::ParameterServer(ServedWorld& served, const LearningOptions& learning, Index steps, Type type,
                                 std::span<const UnitLayout> layouts, Timeline& timeline)
    : served_(served),
      learning_(learning),
      steps_(steps),
      type_(type),
      timeline_(timeline),
      group_(std::move(served.own), "servers", &timeline),
      states_(memory_, type, layouts, {group_, gather_}, ZeroStage::Parameters, 0),
      replies_(static_cast<std::size_t>(served.workers)),
      finished_(replies_.size()) {
  for (std::size_t w = 0; w < replies_.size(); ++w) {
    gradients_.push_back(std::make_unique<Link>(served_.gradients[w], memory_, bell_));
    weights_.push_back(std::make_unique<Link>(served_.weights[w], memory_));
  }
}

void ParameterServer::expect_gradients(std::size_t worker) {
  std::vector<Link::MessageShape> messages;
  for (std::size_t bucket = states_.bucket_count(); bucket-- > 0;)
    messages.push_back({type_, states_.shard_count(bucket)});
  gradients_[worker]->expect(messages);
}

void ParameterServer::take_gradients(std::size_t worker, bool adds) {
  for (std::size_t bucket = states_.bucket_count(); bucket-- > 0;) {
    const Array gradient = gradients_[worker]->receive();
    void* sum = states_.gradient_shard(bucket, served_.index());
    if (adds)
      add(type_, sum, gradient.data(), sum, gradient.count());
    else
      std::memcpy(sum, gradient.data(), static_cast<std::size_t>(gradient.bytes()));
  }
}

void ParameterServer::update(double norm, float rate) {
  if (!std::isfinite(norm))
    throw Error(
        fmt::format("update {}: the gradients are not finite (norm {}): choose a smaller --rate, or look at "
                    "the data",
                    updates_, norm));
  timeline_.during(Activity::Update, [&] {
    states_.update(adamw_of(learning_, rate, updates_, clip_factor(learning_, norm)));
    states_.publish();
  });
  ++updates_;
}

void ParameterServer::reply(std::size_t worker, double norm, double staleness) {
  // What went to this worker last is through, for its next gradient has come since.
  weights_[worker]->finish();
  replies_[worker] = {static_cast<float>(norm), static_cast<float>(staleness)};
  weights_[worker]->send(Type::Float32, replies_[worker].data(), kHeaderCount);
  for (std::size_t bucket = 0; bucket < states_.bucket_count(); ++bucket) {
    // Others' updates go on while this travels.
    Array copy(memory_, Use::Workspace, type_, states_.shard_count(bucket));
    std::memcpy(copy.data(), states_.parameter_shard(bucket, served_.index()),
                static_cast<std::size_t>(copy.bytes()));
    weights_[worker]->send(std::move(copy));
  }
}

void ParameterServer::step(Index step) {
  for (std::size_t w = 0; w < gradients_.size(); ++w) expect_gradients(w);
  for (std::size_t w = 0; w < gradients_.size(); ++w) take_gradients(w, w > 0);
  double squares = 0;
  states_.for_each_owned([&](const ModelStates::Owned& owned) {
    squares += sum_of_squares(type_, owned.gradient, owned.count);
  });
  group_.all_reduce(&squares, 1);
  const double norm = std::sqrt(squares);
  update(norm, learning_rate(learning_, step, steps_));
  for (std::size_t w = 0; w < gradients_.size(); ++w) reply(w, norm, 0);
}

std::size_t ParameterServer::any_worker_with_message() {
  while (true) {
    const std::uint64_t rung = bell_->load();
    // From another worker on each time, so that no fast one keeps the others waiting.
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      const std::size_t worker = (static_cast<std::size_t>(updates_) + i) % gradients_.size();
      if (!finished_[worker] && gradients_[worker]->has_message()) return worker;
    }
    bell_->wait(rung);
  }
}

void ParameterServer::serve() {
  const Link::MessageShape header_shape{Type::Float32, kHeaderCount};
  std::vector<Index> pulled(gradients_.size(), updates_);  // updates in the weights that each worker has
  for (auto& link : gradients_) link->expect({header_shape});
  for (std::size_t left = gradients_.size(); left > 0;) {
    const std::size_t worker = any_worker_with_message();
    const Array header = gradients_[worker]->receive();
    const bool goes_on = header.floats()[1] != 0;
    if (!goes_on) {
      finished_[worker] = true;
      --left;
      continue;
    }
    expect_gradients(worker);
    gradients_[worker]->expect({header_shape});
    take_gradients(worker, false);
    const Index stale = updates_ - pulled[worker];
    const double norm = std::sqrt(static_cast<double>(header.floats()[0]));
    update(norm, learning_rate(learning_, updates_ / served_.workers, steps_));
    pulled[worker] = updates_;
    staleness_[std::min(static_cast<std::size_t>(stale), staleness_.size() - 1)] += 1;
    reply(worker, norm, static_cast<double>(stale));
  }
  for (std::size_t w = 0; w < weights_.size(); ++w) reply(w, 0, 0);
  for (auto& link : weights_) link->finish();
}

}  // namespace trainer
