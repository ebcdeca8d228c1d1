// SPDX-License-Identifier: BSD-3-Clause
//
// Every collective x algorithm x datatype x operator x count x in place x alignment x root, for the ranks it
// is started with: processes (under `tutti run`) or --threads N. Every element of every output is compared,
// and the bytes around it must stay as they were.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <thread>
#include <tuple>
#include <vector>

#include "bench/values.hpp"
#include "tutti/world.hpp"

namespace {

using values::Op;

struct Call {
  const char* name;
  bool reduces, rooted;
  // Elements of a rank's send and receive buffers are count times these.
  bool sends_blocks, receives_blocks;
};
constexpr Call kCalls[] = {
    {"AllReduce", true, false, false, false},    {"Broadcast", false, true, false, false},
    {"Reduce", true, true, false, false},        {"AllGather", false, false, false, true},
    {"ReduceScatter", true, false, true, false}, {"AlltoAll", false, false, true, true},
    {"Gather", false, true, false, true},        {"Scatter", false, true, true, false}};

struct Case {
  const Call* call;
  ncclDataType_t type;
  Op op;
  std::size_t count;
  bool in_place;
  std::size_t shift;
  int root;
};

class Tester {
 public:
  Tester(ncclComm_t comm, int rank, int ranks, bool full, const char* algorithm)
      : comm_(comm), rank_(rank), ranks_(ranks), full_(full), algorithm_(algorithm) {}

  void run_all() {
    auto n = static_cast<std::size_t>(ranks_);
    std::vector<std::size_t> counts{0, 1, n - 1, n + 1, 1001};
    for (const Call& call : kCalls) {
      std::vector<int> roots{0};
      if (call.rooted && ranks_ > 1) roots = {0, ranks_ - 1};
      if (call.rooted && full_)
        for (int r = 1; r < ranks_ - 1; ++r) roots.push_back(r);
      int ops = call.reduces ? 6 : 1;
      for (int type = 0; type < ncclNumTypes; ++type)
        for (int op = 0; op < ops; ++op)
          for (std::size_t count : counts)
            for (bool in_place : {false, true})
              for (int root : roots) {
                // Alignments alternate over the cases; all of them only in the full run.
                std::size_t shift = (static_cast<std::size_t>(type + op) + count) % 2 * 3;
                run({&call, static_cast<ncclDataType_t>(type), static_cast<Op>(op), count, in_place, shift,
                     root});
                if (full_)
                  run({&call, static_cast<ncclDataType_t>(type), static_cast<Op>(op), count, in_place,
                       3 - shift, root});
              }
      for (ncclDataType_t type : {ncclFloat32, ncclInt8, ncclBfloat16})
        for (bool in_place : {false, true})
          run({&call, type, Op::sum, (1U << 20) / (call.sends_blocks || call.receives_blocks ? n : 1) + 3,
               in_place, 1, roots.back()});
    }
  }

  long cases() const { return cases_; }
  long failures() const { return failures_; }

 private:
  bool has_input(const Case& c) const {
    return rank_ == c.root || !c.call->rooted || c.call->reduces || c.call->receives_blocks;
  }
  bool has_output(const Case& c) const {
    return rank_ == c.root || !c.call->rooted || (!c.call->reduces && !c.call->receives_blocks);
  }

  // Making a period takes longer than most calls: each is made once.
  using Periods = std::map<std::tuple<ncclDataType_t, int, int>, std::vector<std::byte>>;
  template <class Make>
  static const std::vector<std::byte>& cached(Periods& periods, ncclDataType_t type, int op, int rank,
                                              Make make) {
    auto& period = periods[{type, op, rank}];
    if (period.empty()) period = make();
    return period;
  }
  const std::vector<std::byte>& input_period(const Case& c, int rank) {
    if (!c.call->reduces) return plain_period(c.type, rank);
    return cached(inputs_, c.type, static_cast<int>(c.op), rank,
                  [&] { return values::reduction_input(c.type, c.op, rank, ranks_); });
  }
  const std::vector<std::byte>& plain_period(ncclDataType_t type, int rank) {
    return cached(plains_, type, 0, rank, [&] { return values::plain_input(type, rank); });
  }
  const std::vector<std::byte>& result_period(const Case& c) {
    return cached(results_, c.type, static_cast<int>(c.op), 0,
                  [&] { return values::reduction_result(c.type, c.op, ranks_); });
  }

  void run(const Case& c) {
    constexpr std::size_t kGuard = 64;
    std::size_t element = values::size_of(c.type);
    auto n = static_cast<std::size_t>(ranks_);
    std::size_t sent = c.count * (c.call->sends_blocks ? n : 1);
    std::size_t received = c.count * (c.call->receives_blocks ? n : 1);
    std::size_t larger = std::max(sent, received);
    send_.assign(larger * element + 2 * kGuard + c.shift, std::byte{0x11});
    receive_.assign(larger * element + 2 * kGuard + c.shift, std::byte{0x22});
    std::byte* input = send_.data() + kGuard + c.shift;
    std::byte* output = receive_.data() + kGuard + c.shift;
    std::size_t own = static_cast<std::size_t>(rank_) * c.count * element;
    if (c.in_place) {  // the smaller lies in the larger; both in the receive buffer
      input = output;
      if (c.call->receives_blocks && !c.call->sends_blocks && has_output(c)) input = output + own;
      if (c.call->sends_blocks && !c.call->receives_blocks && has_input(c)) output = input + own;
    }
    if (has_input(c)) values::fill(input, input_period(c, rank_), element, 0, sent);
    ncclResult_t result = call(c, input, output);
    ++cases_;
    if (result != ncclSuccess) return fail(c, ncclGetLastError(comm_));
    if (std::size_t wrong = has_output(c) ? count_wrong(c, output) : 0; wrong != 0)
      return fail(c, std::to_string(wrong) + " elements are wrong");
    // Nothing outside of the output was written, and out of place the input is as it was.
    std::byte* begin = receive_.data();
    std::byte* end = begin + receive_.size();
    bool writes = has_output(c) || (c.in_place && has_input(c));
    std::size_t extent = !writes ? 0 : c.in_place ? larger * element : received * element;
    std::byte* base = receive_.data() + kGuard + c.shift;
    bool intact = std::all_of(begin, base, [](std::byte b) { return b == std::byte{0x22}; }) &&
                  std::all_of(base + extent, end, [](std::byte b) { return b == std::byte{0x22}; });
    if (!intact) return fail(c, "bytes around the output were written");
    if (!c.in_place && has_input(c) &&
        values::count_wrong(input, input_period(c, rank_), element, 0, sent) != 0)
      fail(c, "the input was written");
  }

  ncclResult_t call(const Case& c, const std::byte* in, std::byte* out) {
    auto op = static_cast<ncclRedOp_t>(c.op);
    bool made = c.op == Op::mulsum && c.call->reduces;
    if (made) {
      std::byte scalar[8];
      values::encode(c.type, values::premul_factor(rank_), scalar);
      ncclRedOpCreatePreMulSum(&op, scalar, c.type, ncclScalarHostImmediate, comm_);
    }
    ncclResult_t result = ncclInternalError;
    switch (c.call - kCalls) {
      case 0:
        result = ncclAllReduce(in, out, c.count, c.type, op, comm_, nullptr);
        break;
      case 1:
        result = ncclBroadcast(in, out, c.count, c.type, c.root, comm_, nullptr);
        break;
      case 2:
        result = ncclReduce(in, out, c.count, c.type, op, c.root, comm_, nullptr);
        break;
      case 3:
        result = ncclAllGather(in, out, c.count, c.type, comm_, nullptr);
        break;
      case 4:
        result = ncclReduceScatter(in, out, c.count, c.type, op, comm_, nullptr);
        break;
      case 5:
        result = ncclAlltoAll(in, out, c.count, c.type, comm_, nullptr);
        break;
      case 6:
        result = ncclGather(in, out, c.count, c.type, c.root, comm_, nullptr);
        break;
      default:
        result = ncclScatter(in, out, c.count, c.type, c.root, comm_, nullptr);
        break;
    }
    if (made) ncclRedOpDestroy(op, comm_);
    return result;
  }

  std::size_t count_wrong(const Case& c, const std::byte* out) {
    std::size_t element = values::size_of(c.type);
    std::size_t own = static_cast<std::size_t>(rank_) * c.count;
    bool one_block = c.call->sends_blocks;  // this rank's block of the senders' buffers
    if (c.call->reduces)
      return values::count_wrong(out, result_period(c), element, one_block ? own : 0, c.count);
    if (!c.call->receives_blocks)
      return values::count_wrong(out, plain_period(c.type, c.root), element, one_block ? own : 0, c.count);
    std::size_t wrong = 0;
    for (int r = 0; r < ranks_; ++r)
      wrong += values::count_wrong(out + static_cast<std::size_t>(r) * c.count * element,
                                   plain_period(c.type, r), element, one_block ? own : 0, c.count);
    return wrong;
  }

  void fail(const Case& c, const std::string& what) {
    if (++failures_ > 5) return;
    std::fprintf(stderr, "rank %d of %d, %s: nccl%s type %d op %d count %zu root %d shift %zu%s: %s\n", rank_,
                 ranks_, algorithm_, c.call->name, static_cast<int>(c.type), static_cast<int>(c.op), c.count,
                 c.root, c.shift, c.in_place ? " in place" : "", what.c_str());
  }

  ncclComm_t comm_;
  int rank_, ranks_;
  bool full_;
  const char* algorithm_;
  std::vector<std::byte> send_, receive_;
  Periods inputs_, plains_, results_;
  long cases_ = 0, failures_ = 0;
};

// More bytes than 32 bits can count, once.
int run_huge(ncclComm_t comm, int rank) {
  const std::size_t count = (std::size_t{1} << 31) + 7;
  std::vector<std::int8_t> data(count, static_cast<std::int8_t>(rank + 1));
  data.back() = static_cast<std::int8_t>(10 * (rank + 1));
  tutti::check(ncclAllReduce(data.data(), data.data(), count, ncclInt8, ncclSum, comm, nullptr));
  bool right =
      std::all_of(data.begin(), data.end() - 1, [](std::int8_t x) { return x == 3; }) && data.back() == 30;
  return right ? 0 : 1;
}

constexpr const char* kAlgorithms[] = {
    "", "ring", "tree", "direct", "flat", "halving_doubling", "recursive_doubling", "bruck", "pairwise"};

}  // namespace

int main(int argc, char** argv) try {
  int threads = 0;
  bool full = false;
  bool huge = false;
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i];
    if (flag == "--threads" && i + 1 < argc) threads = std::atoi(argv[++i]);
    if (flag == "--full") full = true;
    if (flag == "--huge") huge = true;
  }
  tutti::World world = tutti::World::from_environment();
  tutti::Communicator base;
  if (threads == 0) base = world.communicator();
  if (huge) return run_huge(base.get(), world.rank());
  long cases = 0;
  long failures = 0;
  for (const char* algorithm : kAlgorithms) {
    setenv("NCCL_ALGO", algorithm, 1);
    if (threads == 0) {
      tutti::Communicator comm = base.split(0, world.rank());
      Tester tester(comm.get(), world.rank(), world.size(), full, algorithm);
      tester.run_all();
      cases += tester.cases();
      failures += tester.failures();
      continue;
    }
    std::vector<tutti::Communicator> comms = tutti::Communicator::local(threads);
    std::vector<Tester> testers;
    for (int r = 0; r < threads; ++r)
      testers.emplace_back(comms[static_cast<std::size_t>(r)].get(), r, threads, full, algorithm);
    std::vector<std::thread> running;
    for (Tester& tester : testers) running.emplace_back([&tester] { tester.run_all(); });
    for (std::thread& thread : running) thread.join();
    for (const Tester& tester : testers) {
      cases += tester.cases();
      failures += tester.failures();
    }
  }
  if (world.rank() == 0) std::printf("%ld cases, %ld failures\n", cases, failures);
  return failures == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
