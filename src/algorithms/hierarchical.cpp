// SPDX-License-Identifier: BSD-3-Clause
//
// For ranks on several hosts: what can be done within a host is done there, so that as little as possible
// goes over the network between them, and all ranks of a host take part in that.
//
// The ranks of a host are numbered from 0; those with equal numbers on all hosts make a *rail*, on which data
// goes from host to host. There are as many rails as the largest host has ranks; on a smaller host a rank
// stands on several of them.
#include "algorithms/builders.hpp"

namespace tutti::algorithms {
namespace {

constexpr std::uint8_t kParts = 0, kFinished = 1, kForwarded = 2;  // lanes

class Hosts {
 public:
  explicit Hosts(const Shape& shape) : shape_(shape), host_of_(*shape.hosts) {
    for (int r = 0; r < shape.ranks; ++r) {
      auto host = static_cast<std::size_t>(host_of_[static_cast<std::size_t>(r)]);
      if (members_.size() <= host) members_.resize(host + 1);
      if (r == shape.rank) number_ = static_cast<int>(members_[host].size());
      members_[host].push_back(r);
    }
    for (const auto& members : members_) rails_ = std::max(rails_, static_cast<int>(members.size()));
  }

  int count() const { return static_cast<int>(members_.size()); }
  int own() const { return host_of_[static_cast<std::size_t>(shape_.rank)]; }
  int rails() const { return rails_; }
  /// The ranks of a host, ascending.
  const std::vector<int>& members(int host) const { return members_[static_cast<std::size_t>(host)]; }
  int size(int host) const { return static_cast<int>(members(host).size()); }
  /// The rank that stands on a rail on a host.
  int on_rail(int host, int rail) const { return members(host)[static_cast<std::size_t>(rail % size(host))]; }
  /// This rank's number on its host: the first of its rails.
  int number() const { return number_; }
  /// The other ranks of this host.
  std::vector<int> neighbours() const {
    std::vector<int> ranks = members(own());
    std::erase(ranks, shape_.rank);
    return ranks;
  }
  /// Hosts other than this rank's, beginning with the next one, so that not all turn to the same.
  std::vector<int> others() const {
    std::vector<int> hosts;
    for (int k = 1; k < count(); ++k) hosts.push_back((own() + k) % count());
    return hosts;
  }
  /// This rank's host is the last, so that the sums of the others are under way by then.
  std::vector<int> others_and_own() const {
    std::vector<int> hosts = others();
    hosts.push_back(own());
    return hosts;
  }
  /// Who stands on the rail on the other hosts.
  std::vector<int> across(int rail) const {
    std::vector<int> ranks;
    for (int host : others()) ranks.push_back(on_rail(host, rail));
    std::ranges::sort(ranks);
    return ranks;
  }

 private:
  const Shape& shape_;
  const HostMap& host_of_;
  std::vector<std::vector<int>> members_;
  int rails_ = 0;
  int number_ = 0;
};

std::vector<int> both(std::vector<int> a, const std::vector<int>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::ranges::sort(a);
  return a;
}

// All tracks go from rail to rail in one order, so that what is done on one rail never waits for what is done
// on a later one: ranks on several rails could otherwise wait for each other with lanes full.

// Every part of the input has a home: a rail and a host. Every rank gives its part to the rank of its own
// host on that rail, which adds them up and sends the sum to the home's host.
template <class PartOf>
void give_within(const Hosts& hosts, int rail, PartOf part, Track& give) {
  int collector = hosts.on_rail(hosts.own(), rail);
  for (int host : hosts.others_and_own())
    if (Chunk chunk = part(host, rail); chunk.count != 0)
      give.push_back(send(input(chunk.offset), collector, chunk.count, kParts));
}

template <class PartOf>
void sum_for_others(const Hosts& hosts, int rail, PartOf part, Track& reduce) {
  for (int host : hosts.others())
    if (Chunk chunk = part(host, rail); chunk.count != 0)
      reduce.push_back({.in = input(chunk.offset),
                        .from = hosts.neighbours(),
                        .out = {},
                        .to = {hosts.on_rail(host, rail)},
                        .count = chunk.count,
                        .from_lane = kParts,
                        .to_lane = kParts});
}

Schedule all_reduce(const Shape& s) {
  Hosts hosts(s);
  auto part = [&](int host, int rail) {
    return chunk_of(s.count, hosts.count() * hosts.rails(), host * hosts.rails() + rail);
  };
  std::vector<int> neighbours = hosts.neighbours();
  Track give, reduce, forward, take, take_forwarded;
  for (int rail = 0; rail < hosts.rails(); ++rail) {
    int collector = hosts.on_rail(hosts.own(), rail);
    Chunk finished = part(hosts.own(), rail);
    if (collector != s.rank) {
      give_within(hosts, rail, part, give);
      take.push_back(receive(collector, output(finished.offset), finished.count, kFinished));
      for (int host : hosts.others()) {
        Chunk chunk = part(host, rail);
        take_forwarded.push_back(receive(collector, output(chunk.offset), chunk.count, kForwarded));
      }
      continue;
    }
    sum_for_others(hosts, rail, part, reduce);
    std::vector<int> all = both(neighbours, hosts.across(rail));
    reduce.push_back({.in = input(finished.offset),
                      .from = all,
                      .out = output(finished.offset),
                      .to = all,
                      .count = finished.count,
                      .from_lane = kParts,
                      .to_lane = kFinished,
                      .finish = true});
    for (int host : hosts.others()) {
      Chunk chunk = part(host, rail);
      Step step = receive(hosts.on_rail(host, rail), output(chunk.offset), chunk.count, kFinished);
      step.to = neighbours;
      step.to_lane = kForwarded;
      forward.push_back(step);
    }
  }
  return {.tracks = {give, reduce, forward, take, take_forwarded}};
}

Schedule reduce_scatter(const Shape& s) {
  Hosts hosts(s);
  auto part = [&](int host, int rail) {
    if (rail >= hosts.size(host)) return Chunk{};
    return Chunk{block(s, hosts.on_rail(host, rail)), s.count};
  };
  Track give, reduce;
  for (int rail = 0; rail < hosts.rails(); ++rail) {
    if (hosts.on_rail(hosts.own(), rail) != s.rank) {
      give_within(hosts, rail, part, give);
      continue;
    }
    sum_for_others(hosts, rail, part, reduce);
    if (rail != hosts.number()) continue;
    reduce.push_back({.in = input(block(s, s.rank)),
                      .from = both(hosts.neighbours(), hosts.across(rail)),
                      .out = output(0),
                      .to = {},
                      .count = s.count,
                      .from_lane = kParts,
                      .finish = true});
  }
  return {.tracks = {give, reduce}};
}

Schedule all_gather(const Shape& s) {
  Hosts hosts(s);
  std::vector<int> neighbours = hosts.neighbours();
  Step give{.in = input(0),
            .from = {},
            .out = output(block(s, s.rank)),
            .to = both(neighbours, hosts.across(hosts.number())),
            .count = s.count,
            .to_lane = kFinished};
  Track forward, take, take_forwarded;
  for (int neighbour : neighbours)
    take.push_back(receive(neighbour, output(block(s, neighbour)), s.count, kFinished));
  for (int rail = 0; rail < hosts.rails(); ++rail)
    for (int host : hosts.others()) {
      if (rail >= hosts.size(host)) continue;
      int owner = hosts.on_rail(host, rail);
      int collector = hosts.on_rail(hosts.own(), rail);
      bool collects = collector == s.rank;
      Step step = receive(collects ? owner : collector, output(block(s, owner)), s.count,
                          collects ? kFinished : kForwarded);
      if (collects) step.to = neighbours;
      step.to_lane = kForwarded;
      (collects ? forward : take_forwarded).push_back(step);
    }
  return {.tracks = {{give}, forward, take, take_forwarded}};
}

// A chain of hosts that starts, or ends, at the root's; on each, one rank stands in it.
struct Chain {
  Chain(const Shape& s, const Hosts& hosts) {
    int root_host = (*s.hosts)[static_cast<std::size_t>(s.root)];
    int place = (hosts.own() - root_host + hosts.count()) % hosts.count();
    auto leader = [&](int at) {
      return at == 0 ? s.root : hosts.on_rail((root_host + at) % hosts.count(), 0);
    };
    own_leader = leader(place);
    if (place > 0) towards_root = {leader(place - 1)};
    if (place + 1 < hosts.count()) away_from_root = {leader(place + 1)};
  }
  int own_leader = 0;
  std::vector<int> towards_root, away_from_root;  // one rank or none
};

Schedule broadcast(const Shape& s) {
  Hosts hosts(s);
  Chain chain(s, hosts);
  if (s.rank != chain.own_leader) return {.tracks = {{receive(chain.own_leader, output(0), s.count)}}};
  Step step{.in = s.rank == s.root ? input(0) : Range{},
            .from = chain.towards_root,
            .out = output(0),
            .to = both(hosts.neighbours(), chain.away_from_root),
            .count = s.count};
  return {.tracks = {{step}}};
}

Schedule reduce(const Shape& s) {
  Hosts hosts(s);
  Chain chain(s, hosts);
  if (s.rank != chain.own_leader) return {.tracks = {{send(input(0), chain.own_leader, s.count)}}};
  bool last = s.rank == s.root;
  Step step{.in = input(0),
            .from = both(hosts.neighbours(), chain.away_from_root),
            .out = last ? output(0) : Range{},
            .to = chain.towards_root,
            .count = s.count,
            .finish = last};
  return {.tracks = {{step}}};
}

// Gather and scatter: the blocks of another host than the root's are one message, a *parcel*, between the
// root and one rank of that host, as long as a message can be that long; otherwise they go without stopping.
struct Parcel {
  Parcel(const Shape& s, const Hosts& hosts, int host)
      : ranks(hosts.members(host)), count(ranks.size() * s.count) {
    bool root_is_here = (*s.hosts)[static_cast<std::size_t>(s.root)] == host;
    is_used = !root_is_here && ranks.size() > 1 && count <= s.slice;
    in_order = ranks.back() - ranks.front() + 1 == hosts.size(host);
  }
  const std::vector<int>& ranks;
  std::size_t count;
  bool is_used;
  bool in_order;  // the blocks lie side by side in the root's buffer, and need not be brought together
  int leader() const { return ranks.front(); }
};

Schedule scatter_from_root(const Shape& s, const Hosts& hosts) {
  Schedule schedule{.tracks = {{}}};
  Track& track = schedule.tracks[0];
  for (int host : hosts.others_and_own()) {
    Parcel parcel(s, hosts, host);
    if (parcel.is_used && !parcel.in_order) {
      std::size_t packed = schedule.scratch;
      for (int r : parcel.ranks) {
        track.push_back(copy(input(block(s, r)), scratch(schedule.scratch), s.count));
        schedule.scratch += s.count;
      }
      track.push_back(send(scratch(packed), parcel.leader(), parcel.count));
    } else if (parcel.is_used) {
      track.push_back(send(input(block(s, parcel.leader())), parcel.leader(), parcel.count));
    } else {
      for (int r : parcel.ranks)
        if (r != s.root) track.push_back(send(input(block(s, r)), r, s.count));
    }
  }
  track.push_back(copy(input(block(s, s.rank)), output(0), s.count));
  return schedule;
}

Schedule scatter(const Shape& s) {
  Hosts hosts(s);
  if (s.rank == s.root) return scatter_from_root(s, hosts);
  Parcel parcel(s, hosts, hosts.own());
  if (!parcel.is_used) return {.tracks = {{receive(s.root, output(0), s.count)}}};
  if (s.rank != parcel.leader()) return {.tracks = {{receive(parcel.leader(), output(0), s.count)}}};
  Track track{receive(s.root, scratch(0), parcel.count)};
  for (std::size_t i = 1; i < parcel.ranks.size(); ++i)
    track.push_back(send(scratch(i * s.count), parcel.ranks[i], s.count));
  track.push_back(copy(scratch(0), output(0), s.count));
  return {.tracks = {track}, .scratch = parcel.count};
}

Schedule gather_at_root(const Shape& s, const Hosts& hosts) {
  Schedule schedule{.tracks = {{copy(input(0), output(block(s, s.rank)), s.count)}}};
  Track& track = schedule.tracks[0];
  std::vector<int> nearest_first = hosts.others_and_own();
  std::ranges::reverse(nearest_first);
  for (int host : nearest_first) {
    Parcel parcel(s, hosts, host);
    if (parcel.is_used && !parcel.in_order) {
      track.push_back(receive(parcel.leader(), scratch(schedule.scratch), parcel.count));
      for (int r : parcel.ranks) {
        track.push_back(copy(scratch(schedule.scratch), output(block(s, r)), s.count));
        schedule.scratch += s.count;
      }
    } else if (parcel.is_used) {
      track.push_back(receive(parcel.leader(), output(block(s, parcel.leader())), parcel.count));
    } else {
      for (int r : parcel.ranks)
        if (r != s.root) track.push_back(receive(r, output(block(s, r)), s.count));
    }
  }
  return schedule;
}

Schedule gather(const Shape& s) {
  Hosts hosts(s);
  if (s.rank == s.root) return gather_at_root(s, hosts);
  Parcel parcel(s, hosts, hosts.own());
  if (!parcel.is_used) return {.tracks = {{send(input(0), s.root, s.count)}}};
  if (s.rank != parcel.leader()) return {.tracks = {{send(input(0), parcel.leader(), s.count)}}};
  Track track{copy(input(0), scratch(0), s.count)};
  for (std::size_t i = 1; i < parcel.ranks.size(); ++i)
    track.push_back(receive(parcel.ranks[i], scratch(i * s.count), s.count));
  track.push_back(send(scratch(0), s.root, parcel.count));
  return {.tracks = {track}, .scratch = parcel.count};
}

}  // namespace

Schedule hierarchical(const Shape& s) {
  Schedule schedule;
  switch (s.collective) {
    case Collective::all_reduce:
      schedule = all_reduce(s);
      break;
    case Collective::reduce_scatter:
      schedule = reduce_scatter(s);
      break;
    case Collective::all_gather:
      schedule = all_gather(s);
      break;
    case Collective::broadcast:
      schedule = broadcast(s);
      break;
    case Collective::reduce:
      schedule = reduce(s);
      break;
    case Collective::gather:
      schedule = gather(s);
      break;
    default:
      schedule = scatter(s);
  }
  schedule.stable_sends = true;
  return schedule;
}

// For short all-reduces: all ranks of a host add up their host's inputs, then the ranks of each rail exchange
// these sums. Two exchanges in all, one of them over the network.
Schedule hierarchical_flat(const Shape& s) {
  Hosts hosts(s);
  std::vector<int> neighbours = hosts.neighbours();
  std::vector<int> across = hosts.across(hosts.number());
  std::size_t slice = window(s);
  Track track;
  if (!neighbours.empty())
    track.push_back({.in = input(0), .from = {}, .out = {}, .to = neighbours, .count = s.count});
  track.push_back({.in = input(0),
                   .from = neighbours,
                   .out = scratch(0),
                   .to = across,
                   .count = s.count,
                   .from_lane = kParts,
                   .to_lane = kFinished});
  Step finish{
      .in = scratch(0), .from = across, .out = output(0), .to = {}, .count = s.count, .from_lane = kFinished};
  finish.finish = true;
  track.push_back(finish);
  return {.tracks = {track}, .scratch = slice};
}

}  // namespace tutti::algorithms
