// SPDX-License-Identifier: BSD-3-Clause
//
// Results that are stored where those who get them asked for it: when that happens, and that it is right.
#include <memory>
#include <numeric>
#include <vector>

#include "executor/execution.hpp"
#include "memory/host_memory.hpp"
#include "support/catch.hpp"

using namespace tutti;

namespace {

/// An outlet that counts what passes through.
class CountingOutlet final : public Outlet {
 public:
  CountingOutlet(Outlet& outlet, int& placed, int& other) : outlet_(outlet), placed_(placed), other_(other) {}
  bool has_room() override { return outlet_.has_room(); }
  bool has_slot() override { return outlet_.has_slot(); }
  std::byte* slot() override { return outlet_.slot(); }
  void commit(std::size_t bytes, void* landing, const CallHeader& header) override {
    ++other_;
    outlet_.commit(bytes, landing, header);
  }
  std::size_t most_inline() const override { return outlet_.most_inline(); }
  void send_inline(const void* data, std::size_t bytes, const CallHeader& header) override {
    ++other_;
    outlet_.send_inline(data, bytes, header);
  }
  bool can_reach(const void* data, std::size_t bytes) const override {
    return outlet_.can_reach(data, bytes);
  }
  void offer(const void* data, std::size_t bytes, void* landing, const CallHeader& header) override {
    ++other_;
    outlet_.offer(data, bytes, landing, header);
  }
  void send_placed(std::size_t bytes, const CallHeader& header) override {
    ++placed_;
    outlet_.send_placed(bytes, header);
  }
  bool has_settled() override { return outlet_.has_settled(); }
  bool must_settle() const override { return outlet_.must_settle(); }
  std::span<const int> destinations() const override { return outlet_.destinations(); }

 private:
  Outlet& outlet_;
  int& placed_;
  int& other_;
};

struct WindowDeleter {
  void operator()(void* address) const { WindowTable::instance().free(address); }
};

/// A buffer of floats: of ncclMemAlloc's kind, or any.
class Floats {
 public:
  Floats(std::size_t count, bool in_window) {
    if (in_window)
      window_.reset(WindowTable::instance().allocate(count * sizeof(float)));
    else
      plain_.resize(count);
    data_ = in_window ? static_cast<float*>(window_.get()) : plain_.data();
  }
  float* data() const { return data_; }

 private:
  std::unique_ptr<void, WindowDeleter> window_;
  std::vector<float> plain_;
  float* data_ = nullptr;
};

struct Job {
  int ranks = 2;
  std::size_t count = 0;
  bool in_place = false;
  bool threads = true;         // else the ranks believe that they are in different processes
  std::vector<bool> windowed;  // whose buffers lie in windows
};

/// Results by rank: whether all sums are right, and how finished shards were sent.
struct Outcome {
  bool right = true;
  std::vector<int> placed, other;
};

Outcome run(const Job& job) {
  SegmentLayout layout = segment_layout(job.ranks, kLaneCount, job.threads, 4096);
  auto segment = HostSegment::create(layout);
  std::vector<MemoryLanes::Member> members;
  for (int r = 0; r < job.ranks; ++r) members.push_back({r, job.threads ? 1 : 1 + r});
  Outcome outcome;
  outcome.placed.resize(static_cast<std::size_t>(job.ranks));
  outcome.other = outcome.placed;
  StoreTuner tuner;
  struct Rank {
    std::unique_ptr<Lanes> lanes;
    std::unique_ptr<Plan> plan;
    std::vector<std::unique_ptr<Outlet>> outlets;
    std::unique_ptr<Floats> input, output;
    Execution execution;
  };
  std::vector<Rank> ranks(static_cast<std::size_t>(job.ranks));
  for (int r = 0; r < job.ranks; ++r) {
    auto at = static_cast<std::size_t>(r);
    Rank& rank = ranks[at];
    auto duplicate = [](int, std::uint64_t window) { return WindowTable::instance().duplicate(window); };
    rank.lanes =
        std::make_unique<Lanes>(std::make_unique<MemoryLanes>(segment, r, members, true, duplicate), nullptr);
    Shape shape{.collective = Collective::all_reduce,
                .ranks = job.ranks,
                .rank = r,
                .count = job.count,
                .in_place = job.in_place,
                .slice = layout.slice / sizeof(float)};
    rank.plan = make_plan(build(Algorithm::direct, shape), shape, Algorithm::direct, DataType::float32,
                          OperatorKind::sum, *rank.lanes, {}, tuner);
    for (PlanTrack& track : rank.plan->tracks)
      for (PlanStep& step : track.steps)
        if (step.answers) {
          rank.outlets.push_back(
              std::make_unique<CountingOutlet>(*step.outlet, outcome.placed[at], outcome.other[at]));
          step.outlet = rank.outlets.back().get();
        }
    bool windowed = at < job.windowed.size() && job.windowed[at];
    rank.output = std::make_unique<Floats>(job.count, windowed);
    if (!job.in_place) rank.input = std::make_unique<Floats>(job.count, windowed);
    float* input = job.in_place ? rank.output->data() : rank.input->data();
    for (std::size_t i = 0; i < job.count; ++i) input[i] = static_cast<float>(i % 1000 + at);
    rank.execution.start(*rank.plan, input, rank.output->data(), {7, job.count}, 0);
  }
  for (int turn = 0; turn < 100000; ++turn)
    for (Rank& rank : ranks) rank.execution.progress();
  for (Rank& rank : ranks) {
    REQUIRE(rank.execution.done());
    auto n = static_cast<std::size_t>(job.ranks);
    for (std::size_t i = 0; i < job.count; ++i) {
      std::size_t sum = i % 1000 * n + n * (n - 1) / 2;
      outcome.right = outcome.right && rank.output->data()[i] == static_cast<float>(sum);
    }
  }
  return outcome;
}

}  // namespace

TEST_CASE("threads and ranks with windows get results stored in their outputs", "[landing]") {
  // Odd counts; shards longer than a slice and shorter; the last rank's shard shorter than the others'.
  for (std::size_t count : {2999UL, 20001UL})
    for (int n : {2, 3, 5})
      for (bool in_place : {false, true})
        for (bool threads : {true, false}) {
          CAPTURE(count, n, in_place, threads);
          std::vector<bool> windowed(static_cast<std::size_t>(n), !threads);
          Outcome outcome = run({n, count, in_place, threads, windowed});
          CHECK(outcome.right);
          for (int placed : outcome.placed) CHECK(placed > 0);
          for (int other : outcome.other) CHECK(other == 0);
        }
}

TEST_CASE("a rank whose memory others cannot reach is sent its results", "[landing]") {
  for (bool in_place : {false, true}) {
    Outcome plain = run({3, 20001, in_place, false, {}});
    CHECK(plain.right);
    CHECK(std::accumulate(plain.placed.begin(), plain.placed.end(), 0) == 0);
    // Only rank 2's buffers cannot be reached, so that ranks 0 and 1 cannot store for both of theirs.
    Outcome mixed = run({3, 20001, in_place, false, {true, true, false}});
    CHECK(mixed.right);
    CHECK(mixed.placed[0] == 0);
    CHECK(mixed.placed[1] == 0);
    CHECK(mixed.placed[2] > 0);
    CHECK(mixed.other[2] == 0);
  }
}
