// SPDX-License-Identifier: BSD-3-Clause
#include "algorithms/schedule.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "algorithms/builders.hpp"
#include "base/error.hpp"

namespace tutti {
namespace {

constexpr std::array<std::string_view, 10> kCollectiveNames = {
    "AllReduce", "Broadcast", "Reduce",  "AllGather", "ReduceScatter",
    "AlltoAll",  "Gather",    "Scatter", "Send",      "Recv"};
constexpr std::array<std::string_view, kAlgorithmCount> kAlgorithmNames = {
    "ring",     "tree",         "direct",           "flat", "halving_doubling", "recursive_doubling", "bruck",
    "pairwise", "hierarchical", "hierarchical_flat"};

// "All_Reduce" and "allreduce" are the same to a person.
std::string folded(std::string_view name) {
  std::string result;
  for (char c : name)
    if (c != '_' && c != '-') result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

template <class Enum, std::size_t N>
std::optional<Enum> find_folded(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i)
    if (folded(names[i]) == folded(name)) return static_cast<Enum>(i);
  return std::nullopt;
}

// Several hosts, and one with several ranks.
bool has_levels(const HostMap* hosts) {
  if (hosts == nullptr) return false;
  int count = 1 + *std::ranges::max_element(*hosts);
  return count > 1 && count < static_cast<int>(hosts->size());
}

// Every host has as many ranks as the others, and those with the same number on their hosts are in the order
// of the hosts: then sums over hosts are added in one order by all.
bool has_even_rails(const HostMap& hosts) {
  auto count = static_cast<std::size_t>(1 + *std::ranges::max_element(hosts));
  std::vector<std::size_t> sizes(count);
  std::vector<int> last(hosts.size(), -1);  // by number: the host of the rank seen last
  for (int host : hosts) {
    std::size_t number = sizes[static_cast<std::size_t>(host)]++;
    if (last[number] > host) return false;
    last[number] = host;
  }
  return std::ranges::all_of(sizes, [&](std::size_t size) { return size == sizes[0]; });
}

bool is_power_of_two(int n) { return (n & (n - 1)) == 0; }

std::size_t per_rank(const Shape& shape) { return shape.count * static_cast<std::size_t>(shape.ranks); }

std::string describe(const Range& range, std::size_t count) {
  constexpr std::array<std::string_view, 4> kNames = {"-", "input", "output", "scratch"};
  return fmt::format("{}[{}:{}]", kNames[static_cast<std::size_t>(range.buffer)], range.offset,
                     range.offset + count);
}

}  // namespace

std::string_view name_of(Collective collective) {
  return kCollectiveNames[static_cast<std::size_t>(collective)];
}
std::string_view name_of(Algorithm algorithm) { return kAlgorithmNames[static_cast<std::size_t>(algorithm)]; }
std::optional<Algorithm> algorithm_named(std::string_view name) {
  return find_folded<Algorithm>(kAlgorithmNames, name);
}
std::optional<Collective> collective_named(std::string_view name) {
  return find_folded<Collective>(kCollectiveNames, name);
}

int most_on_a_host(const HostMap& hosts) {
  std::ptrdiff_t most = 0;
  for (int host : hosts) most = std::max(most, std::ranges::count(hosts, host));
  return static_cast<int>(most);
}

std::size_t input_count(const Shape& shape) {
  switch (shape.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::all_gather:
    case Collective::gather:
    case Collective::send:
      return shape.count;
    case Collective::broadcast:
      return shape.rank == shape.root ? shape.count : 0;
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return per_rank(shape);
    case Collective::scatter:
      return shape.rank == shape.root ? per_rank(shape) : 0;
    case Collective::receive:
      return 0;
  }
  return 0;
}

std::size_t output_count(const Shape& shape) {
  switch (shape.collective) {
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::reduce_scatter:
    case Collective::scatter:
    case Collective::receive:
      return shape.count;
    case Collective::reduce:
      return shape.rank == shape.root ? shape.count : 0;
    case Collective::all_gather:
    case Collective::all_to_all:
      return per_rank(shape);
    case Collective::gather:
      return shape.rank == shape.root ? per_rank(shape) : 0;
    case Collective::send:
      return 0;
  }
  return 0;
}

std::size_t in_place_offset(const Shape& shape) {
  switch (shape.collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
      return static_cast<std::size_t>(shape.rank) * shape.count;
    default:
      return 0;
  }
}

Chunk chunk_of(std::size_t count, int parts, int index) {
  auto n = static_cast<std::size_t>(parts);
  auto i = static_cast<std::size_t>(index);
  std::size_t unit = count >= 64 * n ? 16 : 1;
  std::size_t units = (count + unit - 1) / unit;
  auto begin_of = [&](std::size_t k) {
    return std::min(count, (units / n * k + std::min(k, units % n)) * unit);
  };
  return {begin_of(i), begin_of(i + 1) - begin_of(i)};
}

bool supports(Algorithm algorithm, Collective collective, int ranks, const HostMap* hosts) {
  using C = Collective;
  auto is_one_of = [collective](auto... candidates) { return ((collective == candidates) || ...); };
  if (is_point_to_point(collective)) return false;
  switch (algorithm) {
    case Algorithm::direct:
      return true;
    case Algorithm::ring:
      return is_one_of(C::all_reduce, C::broadcast, C::reduce, C::all_gather, C::reduce_scatter);
    case Algorithm::tree:
      return is_one_of(C::all_reduce, C::broadcast, C::reduce, C::gather, C::scatter);
    case Algorithm::flat:
      return is_one_of(C::all_reduce);
    case Algorithm::halving_doubling:
      return is_one_of(C::all_reduce) ||
             (is_one_of(C::all_gather, C::reduce_scatter) && is_power_of_two(ranks));
    case Algorithm::recursive_doubling:
      return is_one_of(C::all_reduce);
    case Algorithm::bruck:
      return is_one_of(C::all_gather, C::all_to_all);
    case Algorithm::pairwise:
      return is_one_of(C::all_to_all);
    case Algorithm::hierarchical:
      return collective != C::all_to_all && has_levels(hosts);
    case Algorithm::hierarchical_flat:
      return is_one_of(C::all_reduce) && has_levels(hosts) && has_even_rails(*hosts);
  }
  return false;
}

Schedule build(Algorithm algorithm, const Shape& shape) {
  if (!supports(algorithm, shape.collective, shape.ranks, shape.hosts))
    fail(ncclInternalError, "there is no {} algorithm for {} with {} ranks", name_of(algorithm),
         name_of(shape.collective), shape.ranks);
  if (shape.ranks == 1) {
    Step step = algorithms::copy(algorithms::input(0), algorithms::output(0), shape.count);
    step.finish = is_reducing(shape.collective);
    return {.tracks = {{step}}};
  }
  switch (algorithm) {
    case Algorithm::ring:
      return algorithms::ring(shape);
    case Algorithm::tree:
      return algorithms::tree(shape);
    case Algorithm::direct:
      return algorithms::direct(shape);
    case Algorithm::flat:
      return algorithms::flat(shape);
    case Algorithm::halving_doubling:
      return algorithms::halving_doubling(shape);
    case Algorithm::recursive_doubling:
      return algorithms::recursive_doubling(shape);
    case Algorithm::bruck:
      return algorithms::bruck(shape);
    case Algorithm::pairwise:
      return algorithms::pairwise(shape);
    case Algorithm::hierarchical:
      return algorithms::hierarchical(shape);
    case Algorithm::hierarchical_flat:
      return algorithms::hierarchical_flat(shape);
  }
  fail(ncclInternalError, "unknown algorithm {}", static_cast<int>(algorithm));
}

Schedule point_to_point(const Shape& shape) {
  if (shape.collective == Collective::receive)
    return {
        .tracks = {{algorithms::receive(shape.root, algorithms::output(0), shape.count, kPointToPointLane)}}};
  return {.tracks = {{algorithms::send(algorithms::input(0), shape.root, shape.count, kPointToPointLane)}},
          .stable_sends = true};
}

std::string describe(const Schedule& schedule) {
  std::string text = fmt::format("scratch {} elements\n", schedule.scratch);
  for (std::size_t t = 0; t < schedule.tracks.size(); ++t) {
    text += fmt::format("track {}\n", t);
    for (const Step& step : schedule.tracks[t]) {
      text += "  ";
      if (!step.from.empty())
        text += fmt::format("from {} (lane {}) ", fmt::join(step.from, ","), step.from_lane);
      if (step.in) text += fmt::format("in {} ", describe(step.in, step.count));
      if (step.finish) text += "finish ";
      if (step.out) text += fmt::format("out {} ", describe(step.out, step.count));
      if (!step.to.empty()) text += fmt::format("to {} (lane {}) ", fmt::join(step.to, ","), step.to_lane);
      if (step.landing) text += fmt::format("landing {} ", describe(step.landing, step.count));
      text.back() = '\n';
    }
  }
  return text;
}

}  // namespace tutti
