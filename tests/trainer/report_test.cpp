// SPDX-License-Identifier: BSD-3-Clause
//
// The formulas that reports show are what ranks count.
#include <cmath>
#include <functional>
#include <mutex>

#include "report/measurement.hpp"
#include "report/plot.hpp"
#include "report/scaling.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "worker.hpp"

using namespace trainer;

namespace {

struct Layout {
  const char* name;
  std::function<void(Options&)> set;
};

Options eight_layers() {
  Options options;
  options.shape = {.layers = 8, .width = 32, .heads = 4, .context = 16};
  options.batch = 8;
  options.micro_batch = 2;
  options.held_out = 0.2;
  return options;
}

std::string some_text() {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += static_cast<char>('a' + i * i % 23);
  return text;
}

// Of one step, for each rank, one after the other.
void measure(const Options& options, const std::function<void(const Measurement&, const Worker&)>& checks) {
  check(options, options.ranks());
  const Corpus corpus(some_text(), *byte_tokenizer(), options.shape.context, options.held_out);
  support::LocalRanks ranks(options.ranks());
  std::mutex mutex;
  ranks.run([&](int rank, ncclComm_t) {
    Worker worker(options, corpus,
                  tutti::Communicator(std::exchange(ranks.comms[static_cast<std::size_t>(rank)], nullptr)));
    const Grid& grid = worker.grid();
    Meter meter({&grid.tensor, &grid.data, &grid.data_gather, &grid.pipeline, &grid.ends,
                 &grid.activations_in, &grid.activations_out, &grid.gradients_in, &grid.gradients_out},
                worker.timeline());
    meter.begin(true);
    worker.step(0);
    meter.end();
    const Measurement measurement =
        meter.measurement("", worker.memory(), options, {.stage = grid.pipeline.rank()});
    std::lock_guard lock(mutex);
    checks(measurement, worker);
  });
}

}  // namespace

TEST_CASE("what ranks hold and send is what the formulas of reports say") {
  auto pipeline = [](PipelineSchedule schedule, int chunks) {
    return PipelineShape{.schedule = schedule, .stages = 2, .chunks = chunks};
  };
  const auto layout = GENERATE_COPY(
      Layout{"dp", [](Options& o) { o.grid.data = 4; }},
      Layout{"zero 1", [](Options& o) { o.grid.data = 4, o.zero = ZeroStage::Optimizer; }},
      Layout{"zero 2", [](Options& o) { o.grid.data = 2, o.zero = ZeroStage::Gradients; }},
      Layout{"zero 3", [](Options& o) { o.grid.data = 2, o.zero = ZeroStage::Parameters; }},
      Layout{"tp", [](Options& o) { o.grid.tensor = 2; }},
      Layout{"tp, recomputation", [](Options& o) { o.grid.tensor = 2, o.recompute = true; }},
      Layout{"sequence parallel", [](Options& o) { o.grid.tensor = 2, o.sequence_parallel = true; }},
      Layout{"sequence parallel, recomputation",
             [](Options& o) { o.grid.tensor = 2, o.sequence_parallel = o.recompute = true; }},
      Layout{"gpipe", [&](Options& o) { o.grid.pipeline = pipeline(PipelineSchedule::GPipe, 1); }},
      Layout{"1f1b, dp, tp",
             [&](Options& o) {
               o.grid = {2, 2, pipeline(PipelineSchedule::OneForwardOneBackward, 1)};
             }},
      Layout{"interleaved, sequence parallel", [&](Options& o) {
               o.grid = {1, 2, pipeline(PipelineSchedule::Interleaved, 2)};
               o.sequence_parallel = true;
             }});
  const bool tied = GENERATE(true, false);
  const auto type = GENERATE(Type::Float32, Type::Bfloat16);
  CAPTURE(layout.name, tied, name_of(type));
  Options options = eight_layers();
  options.shape.tied = tied;
  options.precision = type;
  layout.set(options);
  measure(options, [&](const Measurement& m, const Worker& worker) {
    const auto count = static_cast<double>(worker.states().count()),
               padded = static_cast<double>(worker.states().padded_count());
    // Of three kinds of model states, which a rank has with padding.
    for (std::size_t use = 0; use < 3; ++use) {
      CAPTURE(m.memory[use].use);
      CHECK(m.memory[use].largest >= m.memory[use].formula);
      CHECK(m.memory[use].largest <= m.memory[use].formula * padded / count * (1 + 1e-12));
    }
    // What a block keeps, and beside it what the one under work takes.
    const Measurement::Held& activations = m.memory[static_cast<std::size_t>(Use::Activations)];
    CHECK(activations.largest >= activations.formula);
    CHECK(activations.largest <= 1.75 * activations.formula);
    int formulas = 0;
    for (const Measurement::Sent& sent : m.sent) {
      CAPTURE(sent.group, sent.collective, sent.what, sent.bytes, sent.formula);
      if (sent.collective == name_of(Collective::Numbers)) {
        CHECK(sent.bytes < 100);
        continue;
      }
      ++formulas;
      CHECK(sent.bytes >= sent.formula * (1 - 1e-12));
      const bool shards = sent.group == "data" || sent.group == "data (gather)";
      CHECK(sent.bytes <= sent.formula * (shards ? padded / count * 1.01 : 1) * (1 + 1e-12));
    }
    CHECK(formulas ==
          static_cast<int>(expected_traffic(options, {.stage = worker.grid().pipeline.rank()}).size()));
    CHECK(m.computing() >= 0);
    CHECK(m.waiting() <= m.seconds);
  });
}

TEST_CASE("plots are made of finite numbers, whatever the data") {
  const auto values = GENERATE(std::vector<double>{}, std::vector<double>{0}, std::vector<double>{3, 3, 3},
                               std::vector<double>{1e-9, 2e-9}, std::vector<double>{NAN, 1, INFINITY, 2});
  plot::Line line{
      .name = "a < b & \"c\"", .color = plot::kBlue, .stroke = plot::Stroke::Dots, .x = {}, .y = values};
  for (std::size_t i = 0; i < values.size(); ++i) line.x.push_back(static_cast<double>(i));
  std::string text = svg(plot::LinePlot{.x_label = "x", .y_label = "y", .lines = {line}});
  std::vector<double> finite;
  for (double value : values) finite.push_back(std::isfinite(value) ? value : 0);
  text += svg(plot::BarPlot{.label = "b",
                            .quantity = plot::Quantity::Bytes,
                            .segments = std::vector<plot::BarPlot::Segment>(finite.size()),
                            .bars = {{.label = "one", .values = finite}}});
  text += svg(plot::TimePlot{.rows = {"r"}, .kinds = {{"k", plot::kRed}}, .spans = {}, .begin = 0, .end = 0});
  CHECK(text.find("nan") == std::string::npos);
  CHECK(text.find("inf") == std::string::npos);
  CHECK(text.find("a &lt; b &amp; &quot;c&quot;") != std::string::npos);
  CHECK(plot::bytes(0) == "0 B");
  CHECK(plot::bytes(12) == "12 B");
  CHECK(plot::bytes(3.7271e6) == "3.73 MB");
  CHECK(plot::seconds(0.01234) == "12.3 ms");
}

TEST_CASE("Karp-Flatt's fraction and Amdahl's fit find the serial share that times were made with") {
  const double serial = GENERATE(0.0, 0.1, 0.5, 1.0);
  Scaling scaling{.points = {}, .cores = 8};
  for (int ranks : {1, 2, 4, 8, 16}) {
    // With more ranks than cores it is slower than the law says, which the fit leaves out.
    const double crowding = ranks > scaling.cores ? 3 : 1;
    scaling.points.push_back({ranks, "", 2.5 * (serial + (1 - serial) / ranks) * crowding, 0.75, 0.25, 0.1});
  }
  CHECK(std::abs(scaling.serial_share() - serial) < 1e-12);
  CHECK(std::isnan(scaling.karp_flatt(scaling.points[0])));
  for (std::size_t i = 1; i < 4; ++i) {
    CHECK(std::abs(scaling.karp_flatt(scaling.points[i]) - serial) < 1e-12);
    CHECK(std::abs(scaling.speed_up(scaling.points[i]) - scaling.amdahl(scaling.points[i].ranks)) < 1e-12);
  }
  const std::string table = scaling_table(scaling);
  CHECK(says(table, {"ranks", "25.0 %", "10.0 %"}));
  CHECK(says(table, {"This host has 8 cores"}));
  CHECK(says(scaling_page(scaling, "title", "command"), {"<svg", "title", "command"}));
  scaling.cores = 1;
  CHECK(std::isnan(scaling.serial_share()));
  CHECK((scaling_table(scaling) + scaling_page(scaling, "", "")).find("nan") == std::string::npos);
}
