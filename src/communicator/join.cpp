// SPDX-License-Identifier: BSD-3-Clause
//
// How a communicator comes into being: ranks find each other, tell each other who and where they are, and
// those of one host share a segment.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/log.hpp"
#include "base/settings.hpp"
#include "communicator/communicator.hpp"
#include "memory/process_memory.hpp"
#include "topology/machine.hpp"

namespace tutti {

namespace {

// Read by other processes to learn whether they can.
const std::uint64_t kProbe = 0x74757474692D7673;

// What ranks tell each other when they join. Settings that must agree are compared here, where it can be
// said.
struct RankInfo {
  int pid = 0;
  Cores cores;
  int megabits = 0;         // per second, of the interfaces together; 0 if unknown
  std::uint64_t probe = 0;  // address of kProbe in the rank's process
  std::string machine, host, socket, algorithms, slice, single_copy, version, who;
  std::vector<Address> addresses;

  static RankInfo own(int rank) {
    RankInfo info;
    info.pid = getpid();
    info.cores = Cores::of_this_process();
    for (const Interface& interface : Service::instance().interfaces()) info.megabits += interface.megabits;
    info.probe = reinterpret_cast<std::uintptr_t>(&kProbe);
    info.machine = machine_key();
    info.host = host_key();
    if (setting_bool("NCCL_SHM_DISABLE")) info.host += fmt::format("/rank {}", rank);
    info.socket = Service::instance().descriptor_socket();
    info.algorithms = setting_text("NCCL_ALGO");
    info.slice = setting_text("TUTTI_SLICE");
    info.single_copy = setting_text("TUTTI_SINGLE_COPY");
    info.version = std::to_string(NCCL_VERSION_CODE);
    info.who = describe_process();
    info.addresses = Service::instance().listen_addresses();
    return info;
  }
  std::string pack() const {
    WireWriter writer;
    writer.put(pid).put(cores.pack()).put(megabits).put(probe);
    for (auto text : kTexts) writer.put(this->*text);
    write_addresses(writer, addresses);
    return writer.bytes();
  }
  static RankInfo unpack(const std::string& bytes) {
    WireReader reader(bytes);
    RankInfo info;
    info.pid = reader.get<int>();
    info.cores = Cores::unpack(reader.get_text());
    info.megabits = reader.get<int>();
    info.probe = reader.get<std::uint64_t>();
    for (auto text : kTexts) info.*text = reader.get_text();
    info.addresses = read_addresses(reader);
    return info;
  }

 private:
  static constexpr std::array<std::string RankInfo::*, 8> kTexts{
      &RankInfo::machine, &RankInfo::host,        &RankInfo::socket,  &RankInfo::algorithms,
      &RankInfo::slice,   &RankInfo::single_copy, &RankInfo::version, &RankInfo::who};
};

void require_same(const std::vector<RankInfo>& infos, std::string RankInfo::*member, const char* what) {
  for (std::size_t r = 1; r < infos.size(); ++r)
    if (infos[r].*member != infos[0].*member)
      fail(ncclInvalidUsage,
           "{} differs: \"{}\" on rank 0, \"{}\" on rank {}; it must be the same on all ranks", what,
           infos[0].*member, infos[r].*member, r);
}

std::vector<RankInfo> exchange_infos(Control& control, const RankInfo& own) {
  std::vector<RankInfo> infos;
  for (const std::string& bytes : control.all_gather(own.pack())) infos.push_back(RankInfo::unpack(bytes));
  require_same(infos, &RankInfo::version, "the version of the library");
  require_same(infos, &RankInfo::algorithms, "NCCL_ALGO");
  require_same(infos, &RankInfo::slice, "TUTTI_SLICE");
  require_same(infos, &RankInfo::single_copy, "TUTTI_SINGLE_COPY");
  return infos;
}

// The first rank of this rank's host: the lowest with an equal key whose Unix socket can be reached. Two
// containers may look alike and yet share nothing.
int find_leader(const std::vector<RankInfo>& infos, int rank) {
  const RankInfo& own = infos[static_cast<std::size_t>(rank)];
  for (int r = 0; r < rank; ++r) {
    const RankInfo& other = infos[static_cast<std::size_t>(r)];
    if (other.host == own.host && (other.pid == own.pid || reaches_descriptor_socket(other.socket))) return r;
  }
  return rank;
}

// The first rank of the host of each rank.
std::vector<int> find_leaders(Control& control, const std::vector<RankInfo>& infos, int rank) {
  if (infos.size() == 1) return {0};
  std::string own = WireWriter().put(find_leader(infos, rank)).bytes();
  std::vector<int> leaders;
  for (const std::string& bytes : control.all_gather(own)) leaders.push_back(WireReader(bytes).get<int>());
  for (std::size_t r = 0; r < leaders.size(); ++r) {
    int leader = leaders[r];
    bool valid =
        leader >= 0 && leader <= static_cast<int>(r) && leaders[static_cast<std::size_t>(leader)] == leader;
    if (!valid)
      fail(ncclSystemError,
           "rank {} shares memory with rank {}, which shares it with rank {}, but not with that one: start "
           "ranks of one host in the same network and process name spaces, or set NCCL_SHM_DISABLE=1",
           r, leader, leaders[static_cast<std::size_t>(std::clamp(leader, 0, static_cast<int>(r)))]);
  }
  return leaders;
}

// Hosts in the order of their first ranks, by rank.
HostMap number_hosts(const std::vector<int>& leaders) {
  HostMap hosts;
  std::vector<int> firsts;
  for (int leader : leaders) {
    auto found = std::ranges::find(firsts, leader);
    if (found == firsts.end()) found = firsts.insert(found, leader);
    hosts.push_back(static_cast<int>(found - firsts.begin()));
  }
  return hosts;
}

// Ranks, and the cores that they have together.
struct Crowd {
  int ranks = 0;
  Cores cores;
  void add(const RankInfo& info) {
    if (ranks++ == 0) cores = info.cores;
    cores.add(info.cores);
  }
  double ranks_per_core() const { return static_cast<double>(ranks) / cores.count(); }
};

// On this rank's machine, whether or not they share memory.
bool more_ranks_than_cores(const std::vector<RankInfo>& infos, const RankInfo& own) {
  Crowd machine;
  for (const RankInfo& info : infos)
    if (info.machine == own.machine) machine.add(info);
  return machine.ranks_per_core() > 1;
}

// On the most crowded host or machine: the same on all ranks, as their choices must be.
template <class Place>
double ranks_per_core(const std::vector<RankInfo>& infos, Place place_of) {
  std::map<decltype(place_of(0)), Crowd> crowds;
  for (std::size_t r = 0; r < infos.size(); ++r) crowds[place_of(r)].add(infos[r]);
  double most = 0;
  for (const auto& [place, crowd] : crowds) most = std::max(most, crowd.ranks_per_core());
  return most;
}

// The same on all ranks, too: the slowest interfaces count.
NetworkParameters network_parameters(const std::vector<RankInfo>& infos) {
  auto machine_of = [&](std::size_t r) { return infos[r].machine; };
  auto is_like_first = [&](const RankInfo& info) { return info.machine == infos[0].machine; };
  bool one_machine = std::ranges::all_of(infos, is_like_first);
  NetworkParameters parameters = one_machine ? NetworkParameters::virtual_links() : NetworkParameters{};
  parameters.ranks_per_core = ranks_per_core(infos, machine_of);
  int megabits = std::ranges::min(infos, {}, &RankInfo::megabits).megabits;
  if (!one_machine && megabits > 0) parameters.host_bytes_per_second = megabits * 1e6 / 8;
  return parameters;
}

// The ranks of one host and what they share.
struct Host {
  std::vector<MemoryLanes::Member> members;
  bool one_process = false;
  SegmentLayout layout;
  std::vector<int> ranks() const {
    std::vector<int> numbers;
    for (const MemoryLanes::Member& member : members) numbers.push_back(member.rank);
    return numbers;
  }
};

// This rank's host, and how its segment is cut: messages must have the same length everywhere.
Host host_of(int rank, const std::vector<RankInfo>& infos, const HostMap& hosts, std::size_t slice) {
  Host host;
  int most = 0;
  for (std::size_t r = 0; r < infos.size(); ++r) {
    if (hosts[r] == hosts[static_cast<std::size_t>(rank)])
      host.members.push_back({static_cast<int>(r), infos[r].pid});
    most = std::max(most, static_cast<int>(std::ranges::count(hosts, hosts[r])));
  }
  auto own_process = [](const MemoryLanes::Member& member) { return member.process == getpid(); };
  host.one_process = std::ranges::all_of(host.members, own_process);
  bool one_host = host.members.size() == infos.size();
  if (!one_host && slice == 0) slice = slice_between_hosts(most, kLaneCount);
  host.layout = segment_layout(static_cast<int>(host.members.size()), kLaneCount, host.one_process, slice);
  return host;
}

std::size_t slice_setting() {
  if (setting_text("TUTTI_SLICE") == "auto") return 0;
  std::size_t bytes = setting_size("TUTTI_SLICE");
  if (bytes < 4096 || bytes > (4U << 20))
    fail(ncclInvalidArgument, "TUTTI_SLICE={}: expected auto or 4K to 4M", setting_text("TUTTI_SLICE"));
  return bytes;
}

SingleCopyPolicy single_copy_setting(bool crowded) {
  std::string text = setting_text("TUTTI_SINGLE_COPY");
  if (text == "never") return {};
  if (text != "auto") return {.from = setting_size("TUTTI_SINGLE_COPY"), .one_to_one_only = false};
  // With a core for each rank the two copies through a slot go on side by side, in caches, and win; measured
  // in docs/performance.md.
  return crowded ? SingleCopyPolicy{.from = 1 << 20} : SingleCopyPolicy{};
}

// Ranks that share a core and no memory do not see whether they are in each other's way.
int spin_setting(bool crowded, bool network) {
  if (setting_text("TUTTI_SPIN") == "auto") return !crowded ? 4000 : network ? 4 : 1000;
  return static_cast<int>(std::min<std::size_t>(setting_size("TUTTI_SPIN"), 1U << 30));
}

StorePolicy store_setting() {
  std::string text = setting_text("TUTTI_STREAMING");
  if (text == "never") return {.for_others = Store::shared};
  if (text == "always") return {.cached_bytes = 0, .for_others = Store::streaming};
  if (text != "auto") fail(ncclInvalidArgument, "TUTTI_STREAMING={}: expected auto, always or never", text);
  // All of the cache is never theirs: three quarters.
  return {.cached_bytes = std::max<std::size_t>(last_level_cache_bytes(), 8U << 20) / 4 * 3};
}

int socket_setting() {
  std::size_t sockets = setting_size("NCCL_NSOCKS_PERTHREAD");
  if (sockets < 1 || sockets > static_cast<std::size_t>(TcpLink::kMostStripes))
    fail(ncclInvalidArgument, "NCCL_NSOCKS_PERTHREAD={}: expected 1 to {}", sockets, TcpLink::kMostStripes);
  return static_cast<int>(sockets);
}

}  // namespace

void JoinAbort::interrupt(Control& control) {
  control.interrupt(ncclRemoteError, fmt::format("rank {} aborted while it was joining", control.rank()));
}

void JoinAbort::request() {
  std::lock_guard lock(mutex_);
  requested_ = true;
  if (auto control = control_.lock()) interrupt(*control);
}

void JoinAbort::watch(const std::shared_ptr<Control>& control) {
  std::lock_guard lock(mutex_);
  control_ = control;
  if (requested_) interrupt(*control);
}

void Communicator::open_control() {
  std::chrono::milliseconds limit = setting_seconds("TUTTI_INIT_TIMEOUT");
  if (options_.rank == 0 && options_.ids[0].agreed_ports > 0 && options_.ranks > 1) {
    Service::instance().host_directory(options_.ids[0].secret, limit);
    Service::instance().listen_at(options_.ids[0].rendezvous, options_.ids[0].agreed_ports);
  }
  control_ = Control::create(
      {.ids = options_.ids,
       .ranks = options_.ranks,
       .rank = options_.rank,
       .limit = limit,
       .silence = setting_seconds("TUTTI_PEER_TIMEOUT"),
       .on_failure = [health = health_](int, ncclResult_t code,
                                        const std::string& reason) { health->fail(code, reason); },
       .on_left = [health = health_](int rank) { health->note_left(rank); },
       .has_left = [health = health_](int rank) { return health->has_left(rank); },
       .name = [health = health_](int rank) { return health->name(rank); }});
  if (options_.join_abort) options_.join_abort->watch(control_);
  control_->join();
}

// The segment of this host, made by its first rank.
std::shared_ptr<HostSegment> Communicator::share_segment(const SegmentLayout& layout,
                                                         const MemoryLanes::Member& leader,
                                                         const std::string& leader_socket) {
  std::shared_ptr<HostSegment> segment;
  if (leader.rank == rank()) {
    segment = HostSegment::create(layout);
    if (layout.ranks > 1) control_->realm()->share(segment, segment->descriptor());
  }
  control_->all_gather("");  // from here on all segments are there
  if (segment) return segment;
  if (leader.process == getpid())
    segment = std::static_pointer_cast<HostSegment>(control_->realm()->shared_object());
  else
    segment = HostSegment::attach(fetch_descriptor(leader_socket, control_->secret(), 0), layout);
  if (!segment)
    fail(ncclInternalError, "rank {}'s shared memory is gone before rank {} could attach", leader.rank,
         rank());
  return segment;
}

void Communicator::join() {
  filter_ = AlgorithmFilter::parse(setting_text("NCCL_ALGO"));
  timeout_ = setting_seconds("TUTTI_TIMEOUT");
  stall_warning_ = setting_seconds("TUTTI_STALL_WARNING");
  std::size_t slice = slice_setting();
  int sockets_per_way = socket_setting();
  open_control();
  RankInfo own = RankInfo::own(rank());
  std::vector<RankInfo> infos = exchange_infos(*control_, own);
  std::vector<std::string> names, unix_sockets;
  for (const RankInfo& info : infos) {
    names.push_back(info.who);
    unix_sockets.push_back(info.socket);
  }
  health_->set_names(names);
  HostMap hosts = number_hosts(find_leaders(*control_, infos, rank()));
  Host host = host_of(rank(), infos, hosts, slice);
  host.layout.crowded = more_ranks_than_cores(infos, own);
  auto segment = share_segment(host.layout, host.members[0],
                               unix_sockets[static_cast<std::size_t>(host.members[0].rank)]);
  std::vector<int> members = host.ranks();
  auto index = std::ranges::lower_bound(members, rank()) - members.begin();
  health_->attach(segment, members, static_cast<std::size_t>(index));
  board_ = &segment->board(static_cast<int>(index));
  common_ = &segment->common();
  auto memory = std::make_unique<MemoryLanes>(
      segment, rank(), host.members, setting_bool("TUTTI_WINDOWS"),
      [unix_sockets, secret = control_->secret()](int of_rank, std::uint64_t window) {
        return fetch_descriptor(unix_sockets[static_cast<std::size_t>(of_rank)], secret, window);
      });
  std::unique_ptr<TcpLanes> tcp;
  if (members.size() < infos.size()) {
    TcpLanes::Options options{.lanes = kLaneCount,
                              .slice = host.layout.slice,
                              .sockets_per_way = sockets_per_way,
                              .silence = setting_seconds("TUTTI_PEER_TIMEOUT"),
                              .ring = [segment, bell = memory->doorbell(rank())] { bell.wake(); }};
    network_ = std::make_unique<NetworkModel>(hosts, network_parameters(infos), host.layout.slice);
    for (std::size_t r = 0; r < infos.size(); ++r)
      options.peers.push_back({health_->name(static_cast<int>(r)), infos[r].addresses});
    tcp = std::make_unique<TcpLanes>(control_, std::move(options));
  }
  lanes_ = std::make_unique<Lanes>(std::move(memory), std::move(tcp));
  costs_.ranks_per_core = ranks_per_core(infos, [&](std::size_t r) { return hosts[r]; });
  costs_.ranks_per_host = most_on_a_host(hosts);
  costs_.shared_pointers = host.one_process && members.size() == infos.size();
  crowded_ = host.layout.crowded;
  spins_ = spin_setting(crowded_, lanes_->tcp() != nullptr);
  store_policy_ = store_setting();
  watch_processes();
  // Every rank tries to read its neighbour's memory; all have attached when this returns: the first rank of a
  // host may leave then, and ranks of other hosts connect.
  const RankInfo& next =
      infos[static_cast<std::size_t>(members[static_cast<std::size_t>(index + 1) % members.size()])];
  bool readable = can_copy_from_process(next.pid, next.probe, &kProbe, sizeof kProbe);
  std::vector<std::string> answers = control_->all_gather(readable ? "readable" : "");
  bool all_readable = std::find(answers.begin(), answers.end(), "") == answers.end();
  if (!host.one_process && all_readable) single_copy_ = single_copy_setting(crowded_);
  log_info(
      "rank {} of {} joined{}{}: {} kernels, {} B slices, {} of the ranks on this host by {}{}", rank(),
      ranks(), options_.name.empty() ? "" : " ", options_.name, kernel_target_name(), host.layout.slice,
      members.size(), host.one_process ? "in_process (pointers are shared)" : "shared_memory (memfd)",
      lanes_->tcp() == nullptr ? "" : fmt::format(", the others by tcp from {}", to_string(own.addresses)));
}

// A process that ends without having left takes its ranks with it; the kernel tells at once.
void Communicator::watch_processes() {
  Service& service = Service::instance();
  service.post([&service, members = lanes_->memory().members(), health = health_,
                control = std::weak_ptr(control_), own = getpid()] {
    for (const MemoryLanes::Member& member : members) {
      if (member.process == own) continue;
      auto ended = [health, control, rank = member.rank] {
        if (health->has_left(rank)) return;
        std::string reason = health->name(rank) + " is gone: its process ended";
        health->fail(ncclRemoteError, reason);
        if (auto tree = control.lock()) tree->announce_failure(rank, ncclRemoteError, reason);
      };
      service.on_process_end(member.process, control, ended);
    }
  });
}

}  // namespace tutti
