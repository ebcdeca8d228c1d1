// SPDX-License-Identifier: BSD-3-Clause
#include "communicator/communicator.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <thread>

#include "base/log.hpp"
#include "base/settings.hpp"
#include "communicator/batch.hpp"
#include "memory/process_memory.hpp"
#include "topology/machine.hpp"

namespace tutti {
namespace {

// A program with very many different counts would otherwise collect plans for ever.
constexpr std::size_t kMostPlans = 4096;
constexpr std::chrono::microseconds kRetreatLook{50};
constexpr std::chrono::milliseconds kLongestRetreat{100};

// What ranks tell each other when they join. Settings that must agree are compared here, where it can be
// said.
struct RankInfo {
  int pid = 0;
  int cores = 1;
  std::uint64_t probe = 0;  // address of kProbe in the rank's process
  std::string host, socket, algorithms, slice, single_copy, version, who;

  std::string pack() const {
    return WireWriter()
        .put(pid)
        .put(cores)
        .put(probe)
        .put(host)
        .put(socket)
        .put(algorithms)
        .put(slice)
        .put(single_copy)
        .put(version)
        .put(who)
        .bytes();
  }
  static RankInfo unpack(const std::string& bytes) {
    WireReader reader(bytes);
    RankInfo info;
    info.pid = reader.get<int>();
    info.cores = reader.get<int>();
    info.probe = reader.get<std::uint64_t>();
    for (std::string* text : {&info.host, &info.socket, &info.algorithms, &info.slice, &info.single_copy,
                              &info.version, &info.who})
      *text = reader.get_text();
    return info;
  }
};

// Read by other processes to learn whether they can.
const std::uint64_t kProbe = 0x74757474692D7673;

void require_same(const std::vector<RankInfo>& infos, std::string RankInfo::*member, const char* what) {
  for (std::size_t r = 1; r < infos.size(); ++r)
    if (infos[r].*member != infos[0].*member)
      fail(ncclInvalidUsage,
           "{} differs: \"{}\" on rank 0, \"{}\" on rank {}; it must be the same on all ranks", what,
           infos[0].*member, infos[r].*member, r);
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

int spin_setting(bool crowded) {
  if (setting_text("TUTTI_SPIN") == "auto") return crowded ? 1000 : 4000;
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

Communicator::Communicator(const CommunicatorOptions& options)
    : options_(options), batch_(std::make_unique<Batch>(*this)) {}

Communicator::~Communicator() {
  if (control_) finalize();
}

std::shared_ptr<Communicator> Communicator::create(const CommunicatorOptions& options) {
  auto communicator = std::shared_ptr<Communicator>(new Communicator(options));
  communicator->join();
  return communicator;
}

void Communicator::join() {
  filter_ = AlgorithmFilter::parse(setting_text("NCCL_ALGO"));
  timeout_ = setting_seconds("TUTTI_TIMEOUT");
  stall_warning_ = setting_seconds("TUTTI_STALL_WARNING");
  std::size_t slice = slice_setting();
  std::chrono::milliseconds limit = setting_seconds("TUTTI_INIT_TIMEOUT");
  if (options_.rank == 0 && options_.ids[0].rank_0_serves && options_.ranks > 1) {
    Service::instance().host_directory(options_.ids[0].secret, limit);
    Service::instance().listen_at(options_.ids[0].rendezvous);
  }
  auto left = [health = health_](int rank) {
    auto segment = health->segment();
    return segment && segment->board(rank).status.left.load() != 0;
  };
  control_ = Control::create(
      {.ids = options_.ids,
       .ranks = options_.ranks,
       .rank = options_.rank,
       .limit = limit,
       .on_failure = [health = health_](int, ncclResult_t code,
                                        const std::string& reason) { health->fail(code, reason); },
       .on_left = {},
       .has_left = left,
       .name = [health = health_](int rank) { return health->name(rank); }});
  if (options_.join_abort) options_.join_abort->watch(control_);
  control_->join();
  RankInfo own{getpid(),
               usable_cores(),
               reinterpret_cast<std::uintptr_t>(&kProbe),
               host_key(),
               Service::instance().descriptor_socket(),
               setting_text("NCCL_ALGO"),
               setting_text("TUTTI_SLICE"),
               setting_text("TUTTI_SINGLE_COPY"),
               std::to_string(NCCL_VERSION_CODE),
               describe_process()};
  std::vector<RankInfo> infos;
  for (const std::string& bytes : control_->all_gather(own.pack())) infos.push_back(RankInfo::unpack(bytes));
  require_same(infos, &RankInfo::version, "the version of the library");
  require_same(infos, &RankInfo::algorithms, "NCCL_ALGO");
  require_same(infos, &RankInfo::slice, "TUTTI_SLICE");
  require_same(infos, &RankInfo::single_copy, "TUTTI_SINGLE_COPY");
  std::vector<std::string> names;
  for (const RankInfo& info : infos) names.push_back(info.who);
  health_->set_names(names);
  std::vector<int> pids;
  for (std::size_t r = 0; r < infos.size(); ++r) {
    if (infos[r].host != infos[0].host)
      fail(ncclInvalidUsage,
           "ranks 0 and {} are on different hosts (or in containers that share no network name space): that "
           "needs "
           "the tcp transport, which is not there yet",
           r);
    pids.push_back(infos[r].pid);
  }
  bool one_process = std::all_of(pids.begin(), pids.end(), [&](int pid) { return pid == pids[0]; });
  SegmentLayout layout = segment_layout(options_.ranks, kLaneCount, one_process, slice);
  for (const RankInfo& info : infos) layout.crowded = layout.crowded || info.cores < options_.ranks;
  std::shared_ptr<HostSegment> segment;
  if (options_.rank == 0) {
    segment = HostSegment::create(layout);
    control_->realm()->share(segment, segment->descriptor());
  }
  control_->all_gather("");  // from here on the segment is there
  if (options_.rank != 0) {
    if (pids[0] == own.pid)
      segment = std::static_pointer_cast<HostSegment>(control_->realm()->shared_object());
    else
      segment = HostSegment::attach(fetch_descriptor(infos[0].socket, control_->secret(), 0), layout);
    if (!segment)
      fail(ncclInternalError, "rank 0's shared memory is gone before rank {} could attach", rank());
  }
  health_->attach(segment, options_.rank);
  board_ = &segment->board(options_.rank);
  common_ = &segment->common();
  for (int pid : pids) in_this_process_.push_back(pid == own.pid);
  std::vector<std::string> sockets;
  for (const RankInfo& info : infos) sockets.push_back(info.socket);
  lanes_ = std::make_unique<MemoryLanes>(
      segment, options_.rank, pids, setting_bool("TUTTI_WINDOWS"),
      [sockets, secret = control_->secret()](int rank, std::uint64_t window) {
        return fetch_descriptor(sockets[static_cast<std::size_t>(rank)], secret, window);
      });
  costs_.cores = usable_cores();
  costs_.shared_pointers = one_process;
  crowded_ = layout.crowded;
  spins_ = spin_setting(crowded_);
  store_policy_ = store_setting();
  watch_processes(pids);
  // Every rank tries to read its neighbour's memory; all have attached when this returns: rank 0 may leave
  // then.
  const RankInfo& next = infos[static_cast<std::size_t>((rank() + 1) % ranks())];
  bool readable = can_copy_from_process(next.pid, next.probe, &kProbe, sizeof kProbe);
  std::vector<std::string> answers = control_->all_gather(readable ? "readable" : "");
  bool all_readable = std::find(answers.begin(), answers.end(), "") == answers.end();
  if (!one_process && all_readable) single_copy_ = single_copy_setting(layout.crowded);
  log_info("rank {} of {} joined{}{}: {} kernels, {} B slices, lanes {}", rank(), ranks(),
           options_.name.empty() ? "" : " ", options_.name, kernel_target_name(), segment->layout().slice,
           one_process ? "in_process (pointers are shared)" : "shared_memory (memfd)");
}

// A process that ends without having left takes its ranks with it; the kernel tells at once.
void Communicator::watch_processes(const std::vector<int>& pids) {
  Service& service = Service::instance();
  service.post([&service, pids, health = health_, control = std::weak_ptr(control_), own = getpid()] {
    for (std::size_t r = 0; r < pids.size(); ++r) {
      if (pids[r] == own) continue;
      auto ended = [health, control, r] {
        auto segment = health->segment();
        if (segment && segment->board(static_cast<int>(r)).status.left.load() != 0) return;
        std::string reason = health->name(static_cast<int>(r)) + " is gone: its process ended";
        health->fail(ncclRemoteError, reason);
        if (auto tree = control.lock()) tree->announce_failure(static_cast<int>(r), ncclRemoteError, reason);
      };
      service.on_process_end(pids[r], control, ended);
    }
  });
}

void Communicator::break_everywhere(ncclResult_t code, const std::string& reason) {
  health_->fail(code, reason);
  control_->announce_failure(rank(), code, reason);
}

void Communicator::show_core() {
  auto core = static_cast<std::uint32_t>(sched_getcpu() + 1);
  if (board_->bell.core.load(std::memory_order_relaxed) != core)
    board_->bell.core.store(core, std::memory_order_relaxed);
}

bool Communicator::could_use_core(int rank) const {
  const RankBoard::Bell& other = lanes_->segment().board(rank).bell;
  return rank != options_.rank &&
         other.core.load(std::memory_order_relaxed) == board_->bell.core.load(std::memory_order_relaxed) &&
         (other.waiting.load(std::memory_order_relaxed) == 0 ||
          other.news.load(std::memory_order_relaxed) != 0);
}

void Communicator::wait_for_retreat() {
  if (std::exchange(retreated_, true)) return;
  common_->failed.store(1);
  bool one_process = std::ranges::find(in_this_process_, false) == in_this_process_.end();
  one_process ? heavy_fence() : heavy_fence_across_processes();
  auto start = std::chrono::steady_clock::now();
  for (int r = 0; r < ranks(); ++r) {
    bool stuck = false;
    while (lanes_->segment().board(r).status.reaching.load(std::memory_order_acquire) != 0 && !stuck) {
      std::this_thread::sleep_for(kRetreatLook);
      stuck = !in_this_process_[static_cast<std::size_t>(r)] &&
              std::chrono::steady_clock::now() - start > kLongestRetreat;
    }
  }
}

void Communicator::finalize() {
  if (finalized_.exchange(true)) return;
  std::uint64_t ticket = issue();
  await_turn(ticket);
  end_turn();
  if (board_ != nullptr) board_->status.left.store(1);
  if (lanes_ && !health_->is_broken())
    control_->leave();
  else
    control_->announce_failure(rank(), ncclRemoteError,
                               fmt::format("rank {} has left a broken communicator", rank()));
}

void Communicator::abort() {
  std::string reason = fmt::format("rank {} aborted the communicator", rank());
  control_->announce_failure(rank(), ncclRemoteError, reason);
  control_->interrupt(ncclRemoteError, reason);
  health_->fail(ncclRemoteError, reason);
  finalize();
}

void Communicator::wait_for_turn(std::uint64_t ticket) {
  waiting_for_turn_.fetch_add(1);
  heavy_fence();
  for (std::uint64_t now = served_.load(); now != ticket; now = served_.load()) served_.wait(now);
  waiting_for_turn_.fetch_sub(1);
}

Shape Communicator::shape_of(const Operation& operation) const {
  Shape shape{.collective = operation.collective,
              .ranks = ranks(),
              .rank = rank(),
              .root = operation.root,
              .count = operation.count,
              .slice = lanes_->segment().layout().slice / size_of(operation.type)};
  if (operation.input == nullptr || operation.output == nullptr) return shape;
  shape.in_place = static_cast<const std::byte*>(operation.output) ==
                   static_cast<const std::byte*>(operation.input) + in_place_bytes(shape, operation.type);
  return shape;
}

std::size_t Communicator::PlanKeyHash::operator()(const PlanKey& key) const {
  std::size_t hash = key.count;
  for (auto part : {static_cast<std::size_t>(key.collective), static_cast<std::size_t>(key.type),
                    static_cast<std::size_t>(key.kind), static_cast<std::size_t>(key.in_place),
                    static_cast<std::size_t>(key.root)})
    hash = (hash ^ part) * 0x9E3779B97F4A7C15U + (hash >> 29);
  return hash;
}

bool Communicator::trim_plans() {
  if (plans_.size() < kMostPlans) return false;
  plans_.clear();
  last_plans_.fill(nullptr);
  return true;
}

const Plan& Communicator::plan(const Operation& operation) {
  if (const Plan* repeated = plan_of_repeated(operation)) return *repeated;
  Shape shape = shape_of(operation);
  PlanKey key{operation.collective, operation.type, operation.op.kind,
              shape.in_place,       operation.root, operation.count};
  auto found = plans_.find(key);
  if (found == plans_.end()) found = plans_.emplace(key, new_plan(operation, shape)).first;
  last_plans_[static_cast<std::size_t>(operation.collective)] = found->second.get();
  return *found->second;
}

bool Communicator::copies_once(const Shape& shape, Algorithm algorithm, std::size_t bytes) const {
  // Not where a step combines what arrives, nor where blocks are overwritten before they have been read.
  if (is_reducing(shape.collective) || algorithm != Algorithm::direct) return false;
  if (shape.collective == Collective::all_to_all && shape.in_place) return false;
  bool one_to_one = is_point_to_point(shape.collective) || shape.collective == Collective::scatter;
  return bytes >= single_copy_.from && (one_to_one || !single_copy_.one_to_one_only);
}

std::unique_ptr<Plan> Communicator::new_plan(const Operation& operation, Shape shape) {
  Signature signature{0, operation.collective, operation.type, operation.op.kind, Algorithm::direct,
                      0, operation.count};
  std::size_t bytes = operation.count * size_of(operation.type);
  bool point_to_point = is_point_to_point(operation.collective);
  if (point_to_point) {
    signature.collective = Collective::send;  // so that the two ends can meet
  } else {
    signature.algorithm = select(operation.collective, ranks(), bytes, filter_, costs_);
    if (has_root(operation.collective)) signature.root = operation.root;
    log_info("rank {}: {} of {} x {}: {}", rank(), name_of(operation.collective), operation.count,
             name_of(operation.type), name_of(signature.algorithm));
  }
  Schedule schedule = point_to_point ? tutti::point_to_point(shape) : build(signature.algorithm, shape);
  StoreTuner& tuner = tuners_[{operation.collective, shape.in_place, std::bit_width(bytes)}];
  auto plan = make_plan(schedule, shape, signature.algorithm, operation.type, operation.op.kind, *lanes_,
                        store_policy_, tuner);
  plan->header = signature.pack();
  plan->single_copy = copies_once(shape, signature.algorithm, bytes);
  return plan;
}

std::optional<Signature> Communicator::announced(int of_rank, std::uint32_t sequence) const {
  auto header = lanes_->segment().board(of_rank).calls[sequence % RankBoard::kCalls].get();
  if (!header) return std::nullopt;
  Signature signature = Signature::unpack(*header);
  if (signature.sequence != sequence) return std::nullopt;
  return signature;
}

std::optional<std::string> Communicator::find_mismatch() const {
  std::uint32_t oldest = sequence_ < RankBoard::kCalls ? 1 : sequence_ - RankBoard::kCalls + 1;
  for (std::uint32_t number = oldest; number <= sequence_; ++number) {
    auto own = announced(rank(), number);
    for (int r = 0; own && r < ranks(); ++r)
      if (auto other = announced(r, number); other && other->pack() != own->pack())
        return fmt::format("ranks made different calls: rank {} {}, rank {} {}", rank(), own->in_words(), r,
                           other->in_words());
  }
  return std::nullopt;
}

bool Communicator::has_left(int rank) const { return lanes_->segment().board(rank).status.left.load() != 0; }

int Communicator::create_operator(DataType type, const void* scalar, bool read_when_run) {
  PreMulSum op{type, 0, read_when_run ? scalar : nullptr};
  if (!read_when_run) std::memcpy(&op.factor, scalar, size_of(type));
  std::lock_guard lock(operators_mutex_);
  auto free = std::find(operators_.begin(), operators_.end(), std::nullopt);
  if (free == operators_.end()) free = operators_.insert(free, std::nullopt);
  *free = op;
  return static_cast<int>(ncclNumOps) + static_cast<int>(free - operators_.begin());
}

void Communicator::destroy_operator(int op) {
  std::lock_guard lock(operators_mutex_);
  auto index = static_cast<std::size_t>(op - static_cast<int>(ncclNumOps));
  if (op < static_cast<int>(ncclNumOps) || index >= operators_.size() || !operators_[index])
    fail(ncclInvalidArgument, "ncclRedOpDestroy: {} is no operator that this communicator made", op);
  operators_[index].reset();
}

Operator Communicator::find_operator(int op, DataType type) {
  std::lock_guard lock(operators_mutex_);
  auto index = static_cast<std::size_t>(op - static_cast<int>(ncclNumOps));
  if (op < 0 || index >= operators_.size() || !operators_[index])
    fail(ncclInvalidArgument,
         "operator {} is neither one of ncclSum..ncclAvg nor one that this communicator made (and did not "
         "destroy)",
         op);
  const PreMulSum& found = *operators_[index];
  if (found.type != type)
    fail(ncclInvalidArgument, "operator {} was made for {}, the call is about {}", op, name_of(found.type),
         name_of(type));
  Operator result{OperatorKind::premul_sum, found.factor};
  if (found.pointer != nullptr) std::memcpy(&result.scalar, found.pointer, size_of(type));
  return result;
}

}  // namespace tutti
