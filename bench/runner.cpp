// SPDX-License-Identifier: BSD-3-Clause
#include "runner.hpp"

#include <chrono>
#include <cstdlib>
#include <functional>
#include <new>

#include "launch.hpp"

namespace bench {
namespace {

constexpr std::size_t kAlignment = 4096;

// One value of each rank of this thread, combined over all ranks of the job.
double over_all_ranks(std::vector<Rank>& ranks, double value, ncclRedOp_t op) {
  std::vector<double> values(ranks.size(), value);
  tutti::GroupScope group;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    ncclAllReduce(&values[i], &values[i], 1, ncclFloat64, op, ranks[i].comm(), nullptr);
  group.end();
  return values[0];
}

void meet(std::vector<Rank>& ranks) { over_all_ranks(ranks, 0, ncclSum); }

double average_time(std::vector<Rank>& ranks, double microseconds, int average) {
  switch (average) {
    case 0: {  // rank 0's: the others count as nothing
      int rank = 0;
      tutti::check(ncclCommUserRank(ranks[0].comm(), &rank));
      return over_all_ranks(ranks, rank == 0 ? microseconds : 0, ncclMax);
    }
    case 2:
      return over_all_ranks(ranks, microseconds, ncclMin);
    case 3:
      return over_all_ranks(ranks, microseconds, ncclMax);
    default:
      return over_all_ranks(ranks, microseconds, ncclAvg);
  }
}

class Row {
 public:
  Row(std::vector<Rank>& ranks, const Options& options, const std::function<Problem(const Rank&)>& problem_of)
      : ranks_(ranks), options_(options) {
    for (Rank& rank : ranks) {
      problems_.push_back(problem_of(rank));
      ops_.push_back(rank.op_for(problems_.back()));
    }
  }

  void launch(int times) {
    if (times == 1 && ranks_.size() == 1) {
      tutti::check(bench::launch(problems_[0], ranks_[0].buffers(), ops_[0], ranks_[0].comm()));
      return;
    }
    tutti::GroupScope group;
    for (int k = 0; k < times; ++k)
      for (std::size_t i = 0; i < ranks_.size(); ++i)
        bench::launch(problems_[i], ranks_[i].buffers(), ops_[i], ranks_[i].comm());
    group.end();
  }

  Measurement measure() {
    Measurement result;
    for (std::size_t i = 0; i < ranks_.size(); ++i) prepare(problems_[i], ranks_[i].buffers());
    for (int k = 0; k < options_.warmup; ++k) launch(1);
    meet(ranks_);
    auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < options_.iterations; ++k) {
      launch(options_.aggregate);
      if (options_.blocking) meet(ranks_);
    }
    std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    if (options_.iterations > 0)
      result.microseconds =
          average_time(ranks_, time.count() / options_.iterations / options_.aggregate, options_.average);
    for (int k = 0; k < options_.checks; ++k) {
      for (std::size_t i = 0; i < ranks_.size(); ++i) prepare(problems_[i], ranks_[i].buffers());
      launch(1);
      result.wrong = result.wrong.value_or(0) + wrong();
    }
    if (problems_[0].in_place && !checks_in_place(problems_[0].kind)) result.wrong.reset();
    return result;
  }

 private:
  std::size_t wrong() {
    std::vector<double> own;
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      own.push_back(static_cast<double>(check(problems_[i], ranks_[i].buffers())));
    tutti::GroupScope group;
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      ncclAllReduce(&own[i], &own[i], 1, ncclFloat64, ncclSum, ranks_[i].comm(), nullptr);
    group.end();
    return static_cast<std::size_t>(own[0]);
  }

  std::vector<Rank>& ranks_;
  const Options& options_;
  std::vector<Problem> problems_;
  std::vector<ncclRedOp_t> ops_;
};

}  // namespace

Rank::Rank(tutti::Communicator communicator, const Options& options, Kind kind)
    : communicator_(std::move(communicator)),
      options_(options),
      kind_(kind),
      rank_(communicator_.rank()),
      ranks_(communicator_.size()) {
  // The widest need: a size is the same number of bytes for every type, rounded differently.
  std::size_t bytes = options.max_bytes;
  std::size_t per_rank = count_for(kind, bytes, 1, ranks_);
  send_ = allocate(std::max(bytes, send_elements(kind, per_rank, ranks_)));
  receive_ = allocate(std::max(bytes, receive_elements(kind, per_rank, ranks_)));
}

Rank::Rank(Rank&& other) noexcept = default;

Rank::~Rank() {
  if (communicator_.get() == nullptr) return;
  for (auto& [type, op] : premul_ops_) ncclRedOpDestroy(op, comm());
  for (void* handle : handles_) ncclCommDeregister(comm(), handle);
  for (ncclWindow_t window : windows_) ncclCommWindowDeregister(comm(), window);
  for (void* memory : allocations_) {
    if (options_.registration == 2)
      ncclMemFree(memory);
    else
      std::free(memory);
  }
}

std::byte* Rank::allocate(std::size_t bytes) {
  std::size_t size = (bytes + options_.unalign + 2 * kAlignment - 1) / kAlignment * kAlignment;
  void* memory = nullptr;
  if (options_.registration == 2)
    tutti::check(ncclMemAlloc(&memory, size));
  else
    memory = std::aligned_alloc(kAlignment, size);
  if (memory == nullptr)
    throw tutti::Exception(ncclSystemError,
                           "out of memory for buffers of " + std::to_string(size) + " bytes");
  allocations_.push_back(memory);
  if (options_.registration == 1) {
    handles_.push_back(nullptr);
    tutti::check(ncclCommRegister(comm(), memory, size, &handles_.back()));
  }
  if (options_.registration == 2) {
    windows_.push_back(nullptr);
    tutti::check(ncclCommWindowRegister(comm(), memory, size, &windows_.back(), NCCL_WIN_COLL_SYMMETRIC));
  }
  return static_cast<std::byte*>(memory) + options_.unalign;
}

Problem Rank::problem(ncclDataType_t type, values::Op op, int root, std::size_t bytes, bool in_place) const {
  Problem problem{kind_, type, op, root, rank_, ranks_, 0, in_place};
  problem.count = count_for(kind_, bytes, problem.element(), ranks_);
  return problem;
}

Buffers Rank::buffers() const { return {send_, receive_}; }

ncclRedOp_t Rank::op_for(const Problem& problem) {
  if (problem.op != values::Op::mulsum) return static_cast<ncclRedOp_t>(problem.op);
  for (auto& [type, op] : premul_ops_)
    if (type == problem.type) return op;
  std::byte scalar[8];
  values::encode(problem.type, values::premul_factor(rank_), scalar);
  ncclRedOp_t op{};
  tutti::check(ncclRedOpCreatePreMulSum(&op, scalar, problem.type, ncclScalarHostImmediate, comm()));
  premul_ops_.emplace_back(problem.type, op);
  return op;
}

void run_table(std::vector<Rank>& ranks, const Options& options, Kind kind, Report* report) {
  Problem any = ranks[0].problem(ncclInt8, values::Op::sum, 0, 0, false);
  std::vector<values::Op> ops = reduces(kind) ? options.ops : std::vector{values::Op::sum};
  std::vector<int> roots{has_root(kind) ? options.root : 0};
  if (roots[0] >= any.ranks)
    throw tutti::Exception(ncclInvalidArgument, "-r " + std::to_string(roots[0]) + ": there are only " +
                                                    std::to_string(any.ranks) + " ranks");
  if (roots[0] < 0) {
    roots.clear();
    for (int r = 0; r < any.ranks; ++r) roots.push_back(r);
  }
  for (int cycle = 0; options.cycles == 0 || cycle < options.cycles; ++cycle)
    for (ncclDataType_t type : options.types)
      for (values::Op op : ops)
        for (int root : roots)
          for (std::size_t bytes : options.sizes()) {
            Measurement places[2];
            for (bool in_place : {false, true})
              places[in_place ? 1 : 0] = Row(ranks, options, [&](const Rank& rank) {
                                           return rank.problem(type, op, root, bytes, in_place);
                                         }).measure();
            if (report != nullptr)
              report->row(ranks[0].problem(type, op, root, bytes, false), places[0], places[1]);
          }
}

}  // namespace bench
