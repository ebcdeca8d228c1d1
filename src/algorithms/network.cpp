// SPDX-License-Identifier: BSD-3-Clause
#include "algorithms/network.hpp"

#include <algorithm>
#include <bit>
#include <deque>
#include <limits>

namespace tutti {
namespace {

struct Load {
  double messages = 0, in = 0, out = 0;
};

// Runs all ranks' schedules with lanes that hold everything, and keeps, for every track and message, how many
// hops over the network lie behind it.
class Counter {
 public:
  Counter(std::vector<Schedule> schedules, const HostMap& hosts)
      : schedules_(std::move(schedules)), hosts_(hosts) {
    for (std::size_t r = 0; r < schedules_.size(); ++r)
      for (const Track& track : schedules_[r].tracks) tracks_.push_back({static_cast<int>(r), &track});
    ranks_.resize(schedules_.size());
    hosts_loads_.resize(schedules_.size());
  }

  NetworkWork count(double elements_per_call) {
    for (bool moved = true; moved;) {
      moved = false;
      for (Progress& track : tracks_)
        while (track.step < track.steps->size() && advance(track)) moved = true;
    }
    NetworkWork work;
    work.hops = hops_;
    auto ranks = static_cast<double>(ranks_.size());
    for (const Load& rank : ranks_) {
      double bytes = (rank.in + rank.out) / elements_per_call;
      work.busiest.messages = std::max(work.busiest.messages, rank.messages);
      work.busiest.bytes = std::max(work.busiest.bytes, bytes);
      work.average.messages += rank.messages / ranks;
      work.average.bytes += bytes / ranks;
    }
    for (const Load& host : hosts_loads_)
      work.host_bytes = std::max(work.host_bytes, std::max(host.in, host.out) / elements_per_call);
    return work;
  }

 private:
  struct Progress {
    int rank;
    const Track* steps;
    std::size_t step = 0;
    int hops = 0;
  };

  std::deque<int>& lane(int from, int to, int number) { return lanes_[{from, to, number}]; }

  bool advance(Progress& track) {
    const Step& step = (*track.steps)[track.step];
    if (step.count != 0) {
      for (int from : step.from)
        if (lane(from, track.rank, step.from_lane).empty()) return false;
      for (int from : step.from) {
        auto& messages = lane(from, track.rank, step.from_lane);
        track.hops = std::max(track.hops, messages.front());
        messages.pop_front();
      }
      for (int to : step.to) send(track, to, step);
      hops_ = std::max(hops_, track.hops);
    }
    ++track.step;
    return true;
  }

  void send(const Progress& track, int to, const Step& step) {
    auto from = static_cast<std::size_t>(track.rank);
    auto dest = static_cast<std::size_t>(to);
    bool crosses = hosts_[from] != hosts_[dest];
    lane(track.rank, to, step.to_lane).push_back(track.hops + (crosses ? 1 : 0));
    if (!crosses) return;
    auto bytes = static_cast<double>(step.count);
    for (Load* sender : {&ranks_[from], &hosts_loads_[static_cast<std::size_t>(hosts_[from])]}) {
      ++sender->messages;
      sender->out += bytes;
    }
    for (Load* receiver : {&ranks_[dest], &hosts_loads_[static_cast<std::size_t>(hosts_[dest])]}) {
      ++receiver->messages;
      receiver->in += bytes;
    }
  }

  std::vector<Schedule> schedules_;
  const HostMap& hosts_;
  std::vector<Progress> tracks_;
  std::map<std::tuple<int, int, int>, std::deque<int>> lanes_;
  std::vector<Load> ranks_, hosts_loads_;
  int hops_ = 0;
};

}  // namespace

NetworkWork count_network_work(Algorithm algorithm, Collective collective, const HostMap& hosts,
                               std::size_t blocks_per_message) {
  // So many that every part of a rank's buffer has some, of nearly equal numbers.
  constexpr std::size_t kElementsPerRank = 1024;
  Shape shape{.collective = collective, .ranks = static_cast<int>(hosts.size())};
  shape.count = kElementsPerRank * hosts.size();
  shape.slice = shape.count * blocks_per_message;
  shape.hosts = &hosts;
  std::vector<Schedule> schedules;
  for (int r = 0; r < shape.ranks; ++r) {
    shape.rank = r;
    schedules.push_back(build(algorithm, shape));
  }
  return Counter(std::move(schedules), hosts).count(static_cast<double>(shape.count));
}

NetworkParameters NetworkParameters::virtual_links() {
  return {.hop_seconds = 0.5e-6,
          .rank_bytes_per_second = 7.5e9,
          .host_bytes_per_second = std::numeric_limits<double>::infinity()};
}

std::size_t NetworkModel::blocks_per_message(std::size_t bytes) const {
  std::size_t fit = slice_ / std::max<std::size_t>(bytes, 1);
  return fit >= hosts_.size() ? hosts_.size() : std::max<std::size_t>(std::bit_floor(fit), 1);
}

double NetworkModel::seconds(Algorithm algorithm, Collective collective, std::size_t bytes) {
  std::size_t blocks = blocks_per_message(bytes);
  std::tuple key{algorithm, collective, blocks};
  auto found = counted_.find(key);
  if (found == counted_.end())
    found = counted_.emplace(key, count_network_work(algorithm, collective, hosts_, blocks)).first;
  const NetworkWork& work = found->second;
  auto size = static_cast<double>(bytes);
  double turns = std::max(1.0, parameters_.ranks_per_core);
  auto of_cores = [&](double busiest, double average) { return std::max(busiest, turns * average); };
  double messages = of_cores(work.busiest.messages, work.average.messages);
  double calls = of_cores(work.busiest.bytes, work.average.bytes) * size / parameters_.rank_bytes_per_second;
  double wire = work.host_bytes * size / parameters_.host_bytes_per_second;
  return work.hops * parameters_.hop_seconds + messages * parameters_.message_seconds + std::max(calls, wire);
}

}  // namespace tutti
