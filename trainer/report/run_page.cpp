// SPDX-License-Identifier: BSD-3-Clause
#include "report/run_page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "report/page.hpp"
#include "report/plot.hpp"
#include "report/statistics.hpp"

namespace trainer {

namespace {

constexpr std::size_t kMostPoints = 1500;

std::string rank_label(std::size_t rank, const Measurement& m) { return fmt::format("{}: {}", rank, m.name); }

template <class Get>
std::vector<double> each(const std::vector<History::Step>& steps, Get get) {
  std::vector<double> values;
  for (const History::Step& step : steps) values.push_back(get(step));
  return values;
}

// Rows that are the same for several ranks, once: "0, 1" in front of them.
class RankTable {
 public:
  explicit RankTable(std::vector<std::string> heading) : heading_(std::move(heading)) {}

  void add(std::size_t rank, std::vector<std::string> cells) {
    auto same = [&](const Row& row) { return row.cells == cells; };
    auto found = std::find_if(rows_.begin(), rows_.end(), same);
    if (found == rows_.end()) found = rows_.insert(rows_.end(), {{}, std::move(cells)});
    found->ranks.push_back(rank);
  }
  bool empty() const { return rows_.empty(); }
  std::vector<std::vector<std::string>> finish() const {
    std::vector<std::vector<std::string>> table = {heading_};
    for (const Row& row : rows_) {
      table.push_back({fmt::format("{}", fmt::join(row.ranks, ", "))});
      table.back().insert(table.back().end(), row.cells.begin(), row.cells.end());
    }
    return table;
  }

 private:
  struct Row {
    std::vector<std::size_t> ranks;
    std::vector<std::string> cells;
  };
  std::vector<std::string> heading_;
  std::vector<Row> rows_;
};

std::string ratio(double measured, double formula) { return fmt::format("{:.3f}", measured / formula); }

// --- facts

std::string share(double value) { return fmt::format("{:.1f} %", 100 * value); }

void add_facts(Page& page, const Options& o, const History& history, const std::vector<Measurement>& ranks) {
  const double seconds = median(each(history.steps, [](const auto& s) { return s.seconds; }));
  std::vector<std::pair<std::string, std::string>> facts = {
      {"Layout", describe_layout(o)},
      {"Model", fmt::format("{} parameters: {}", parameter_count(model_units(o.shape)), describe(o.shape))},
      {"Precision", name_of(o.precision)},
      {"A step", fmt::format("{} samples of {} tokens, {} a rank at once", o.batch, o.shape.context,
                             o.samples_at_once())}};
  if (!history.steps.empty()) {
    const double waiting =
        std::accumulate(history.steps.begin(), history.steps.end(), 0.0,
                        [](double sum, const auto& s) { return sum + s.waiting / s.seconds; });
    facts.push_back({"Median step", fmt::format("{}, {:.0f} tokens/s", plot::seconds(seconds),
                                                static_cast<double>(o.batch * o.shape.context) / seconds)});
    facts.push_back({"Rank 0 waits", share(waiting / static_cast<double>(history.steps.size()))});
    if (o.timed_block == 0)
      facts.push_back(
          {"Loss", fmt::format("{:.4f} to {:.4f}", history.steps.front().loss, history.steps.back().loss)});
  }
  if (!history.held_out.empty())
    facts.push_back({"Held-out loss", fmt::format("{:.4f} (a token without its neighbours: {:.4f})",
                                                  history.held_out.back().loss, history.unigram_entropy)});
  if (o.grid.pipeline.stages > 1)
    facts.push_back(
        {"Bubble", fmt::format("{} in the median, {} by the formula (p-1)/(v m+p-1)",
                               share(median(each(history.steps, [](const auto& s) { return s.bubble; }))),
                               share(bubble_share(o.grid.pipeline, o.micro_batches())))});
  facts.push_back(
      {"Load imbalance",
       fmt::format("the slowest rank computes {} longer than the mean",
                   share(imbalance(std::span(ranks).first(static_cast<std::size_t>(o.grid.ranks())))))});
  page.facts(facts);
}

// --- pictures

// Each point the mean of as many steps as make them few enough to draw.
plot::Line thinned(const History& history, std::string name, const char* color, plot::Stroke stroke) {
  plot::Line line{.name = std::move(name), .color = color, .stroke = stroke, .x = {}, .y = {}};
  const std::size_t group = history.steps.size() / kMostPoints + 1;
  for (std::size_t first = 0; first < history.steps.size(); first += group) {
    const std::size_t count = std::min(group, history.steps.size() - first);
    double sum = 0;
    for (std::size_t i = first; i < first + count; ++i) sum += history.steps[i].loss;
    line.x.push_back(static_cast<double>(history.steps[first + count - 1].step));
    line.y.push_back(sum / static_cast<double>(count));
  }
  return line;
}

// Each point the mean of its neighbourhood.
plot::Line smoothed(const plot::Line& line) {
  plot::Line smooth = line;
  smooth.name += ", smoothed";
  smooth.color = plot::kBlue;
  smooth.stroke = plot::Stroke::Solid;
  const std::size_t count = line.y.size(), reach = count / 40 + 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t own_reach = std::min({reach, i, count - 1 - i});
    const auto first = line.y.begin() + static_cast<std::ptrdiff_t>(i - own_reach);
    const auto length = 2 * own_reach + 1;
    smooth.y[i] = std::accumulate(first, first + static_cast<std::ptrdiff_t>(length), 0.0) /
                  static_cast<double>(length);
  }
  return smooth;
}

void add_losses(Page& page, const History& history) {
  if (history.steps.empty()) return;
  page.section("Loss",
               "Mean of -log p(next token) over a step's tokens, in nats. The dashed line is what a model "
               "reaches that knows how frequent each token is, and nothing of its neighbours.");
  plot::LinePlot plot{.x_label = "step", .y_label = "loss", .lines = {}};
  plot::Line losses = thinned(history, "training", plot::kSky, plot::Stroke::Faint);
  if (losses.y.size() > 60) {
    plot.lines = {losses, smoothed(losses)};
  } else {
    losses.color = plot::kBlue;
    losses.stroke = plot::Stroke::Solid;
    plot.lines = {losses};
  }
  plot::Line held_out{
      .name = "held out", .color = plot::kRed, .stroke = plot::Stroke::Dots, .x = {}, .y = {}};
  for (const History::HeldOut& h : history.held_out) {
    held_out.x.push_back(static_cast<double>(h.step));
    held_out.y.push_back(h.loss);
  }
  if (!held_out.x.empty()) plot.lines.push_back(held_out);
  const double first = losses.x.front(), last = losses.x.back(), entropy = history.unigram_entropy;
  plot.lines.push_back(
      {"unigram entropy", plot::kGrey, plot::Stroke::Dashed, {first, last}, {entropy, entropy}});
  page.picture("loss", svg(plot));
}

bool is_pipeline(const std::string& group) {
  return group == "pipeline" || group == "next stage" || group == "previous stage";
}

void add_timeline(Page& page, const std::vector<Measurement>& ranks) {
  enum Kind : std::size_t { Forward, Backward, Update, Bubble, Wait };
  plot::TimePlot plot{.rows = {},
                      .kinds = {{"forward", plot::kBlue},
                                {"backward", plot::kGreen},
                                {"update", plot::kPurple},
                                {"bubble: waiting for another stage", plot::kOrange},
                                {"waiting for others", plot::kRed}},
                      .spans = {},
                      .begin = 0,
                      .end = 0};
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    plot.rows.push_back(rank_label(r, ranks[r]));
    for (const Measurement::Shown& s : ranks[r].spans) {
      const bool waits = s.activity == name_of(Activity::Wait), bubble = waits && is_pipeline(s.of);
      const Kind kind = bubble                                      ? Bubble
                        : waits                                     ? Wait
                        : s.activity == name_of(Activity::Forward)  ? Forward
                        : s.activity == name_of(Activity::Backward) ? Backward
                                                                    : Update;
      std::string title = waits ? fmt::format("waiting for {}", s.of) : s.activity;
      if (s.micro_batch >= 0) title += fmt::format(" of micro-batch {}, chunk {}", s.micro_batch, s.chunk);
      plot.spans.push_back({r, kind, s.begin, s.end, title, waits && !bubble});
      plot.end = std::max(plot.end, s.end);
    }
  }
  page.section(
      "One step of every rank",
      "The last step (where ranks do not keep step: until the first one ended), on rank 0's clock. Waiting "
      "within a pass is drawn over it, in the lower half. Point at a span for its micro-batch and length; "
      "--trace writes all steps for https://ui.perfetto.dev.");
  page.picture("timeline", svg(plot));
}

void add_times(Page& page, const std::vector<Measurement>& ranks) {
  page.section(
      "Where the time of a step goes",
      "Mean of all steps. Ranks that compute longer than others are waited for: what the first segments "
      "differ by is the load imbalance (of processes that share a core, too).");
  plot::BarPlot plot{.label = "a step",
                     .quantity = plot::Quantity::Seconds,
                     .segments = {{"computing", plot::kBlue},
                                  {"bubble", plot::kOrange},
                                  {"tensor-parallel ranks", plot::kRed},
                                  {"data-parallel ranks", plot::kPurple},
                                  {"servers and workers", plot::kSky}},
                     .bars = {}};
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    plot::BarPlot::Bar bar{.label = rank_label(r, ranks[r]),
                           .values = std::vector<double>(plot.segments.size())};
    bar.values[0] = ranks[r].computing();
    for (const Measurement::Waited& wait : ranks[r].waits) {
      const bool tensor = wait.group == "tensor", served = wait.group == "servers" || wait.group == "workers";
      const std::size_t segment = is_pipeline(wait.group) || wait.group == "ends" ? 1
                                  : tensor                                        ? 2
                                  : served                                        ? 4
                                                                                  : 3;
      bar.values[segment] += wait.seconds;
    }
    plot.bars.push_back(std::move(bar));
  }
  page.picture("times", svg(plot));
}

void add_memory(Page& page, const std::vector<Measurement>& ranks) {
  page.section(
      "Memory",
      "The most bytes that each use had at a time. The thin bars are the formulas: ZeRO's for the model "
      "states; for activations, what all stored micro-batches keep for their backward passes, to which the "
      "measured figure adds what the block under work takes. Workspace (buffers of reductions and gathered "
      "weights) has no formula.");
  static constexpr const char* kColors[] = {plot::kBlue, plot::kGreen, plot::kPurple, plot::kOrange,
                                            plot::kGrey};
  plot::BarPlot plot{
      .label = "memory of a rank", .quantity = plot::Quantity::Bytes, .segments = {}, .bars = {}};
  for (std::size_t use = 0; use < kUseCount; ++use)
    plot.segments.push_back({name_of(static_cast<Use>(use)), kColors[use]});
  RankTable table({"ranks", "use", "measured", "formula", "ratio"});
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    plot::BarPlot::Bar measured{.label = rank_label(r, ranks[r]), .values = {}};
    plot::BarPlot::Bar expected{.label = "", .values = {}, .faint = true};
    for (const Measurement::Held& held : ranks[r].memory) {
      measured.values.push_back(held.largest);
      expected.values.push_back(std::isfinite(held.formula) ? held.formula : 0);
      if (held.formula > 0)
        table.add(r, {held.use, plot::bytes(held.largest), plot::bytes(held.formula),
                      ratio(held.largest, held.formula)});
    }
    plot.bars.push_back(std::move(measured));
    plot.bars.push_back(std::move(expected));
  }
  page.picture("memory", svg(plot));
  page.table(table.finish(), 2);
}

void add_traffic(Page& page, const std::vector<Measurement>& ranks) {
  page.section(
      "Bytes sent in a step",
      "By each rank, as a ring sends them, in the mean of all steps, beside the formula. Shards are padded "
      "to whole cache lines; single numbers are losses and norms. One rank alone sends nothing.");
  RankTable table({"ranks", "group", "collective", "formula", "calls", "sent", "by the formula", "ratio"});
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (const Measurement::Sent& sent : ranks[r].sent) {
      const bool known = sent.formula > 0;
      table.add(r, {sent.group, sent.collective, sent.what, fmt::format("{:g}", sent.calls),
                    plot::bytes(sent.bytes), known ? plot::bytes(sent.formula) : "",
                    known ? ratio(sent.bytes, sent.formula) : ""});
    }
  plot::BarPlot plot{
      .label = "sent by a rank in a step", .quantity = plot::Quantity::Bytes, .segments = {}, .bars = {}};
  static constexpr const char* kColors[] = {plot::kBlue, plot::kGreen, plot::kPurple, plot::kOrange,
                                            plot::kGrey};
  for (std::size_t c = 0; c < kCollectiveCount; ++c)
    plot.segments.push_back({name_of(static_cast<Collective>(c)), kColors[c]});
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<double> nothing(kCollectiveCount);
    plot::BarPlot::Bar measured{.label = rank_label(r, ranks[r]), .values = nothing};
    plot::BarPlot::Bar expected{.label = "", .values = nothing, .faint = true};
    for (const Measurement::Sent& sent : ranks[r].sent)
      for (std::size_t c = 0; c < kCollectiveCount; ++c)
        if (sent.collective == plot.segments[c].name) {
          measured.values[c] += sent.bytes;
          expected.values[c] += std::isfinite(sent.formula) ? sent.formula : 0;
        }
    plot.bars.push_back(std::move(measured));
    plot.bars.push_back(std::move(expected));
  }
  if (table.empty()) return;
  page.picture("traffic", svg(plot));
  page.table(table.finish(), 4);
}

}  // namespace

std::string run_page(const Options& options, const History& history, const std::vector<Measurement>& ranks) {
  Page page("Training run", describe_layout(options));
  page.command(options.command);
  add_facts(page, options, history, ranks);
  if (options.timed_block == 0) add_losses(page, history);
  add_timeline(page, ranks);
  add_times(page, ranks);
  add_memory(page, ranks);
  add_traffic(page, ranks);
  return page.finish();
}

}  // namespace trainer
