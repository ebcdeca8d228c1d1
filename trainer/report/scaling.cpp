// SPDX-License-Identifier: BSD-3-Clause
#include "report/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/page.hpp"
#include "report/plot.hpp"

namespace trainer {

namespace {

double share_of_communication(const ScalingPoint& point) {
  const double all = point.computing + point.waiting;
  return all > 0 ? point.waiting / all : 0;
}

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", 100 * share) : "-";
}

std::vector<std::vector<std::string>> rows(const Scaling& s) {
  std::vector<std::vector<std::string>> table = {{"ranks", "step", "speed-up", "efficiency", "Karp-Flatt",
                                                  "Amdahl's fit", "communication", "imbalance"}};
  for (const ScalingPoint& p : s.points)
    table.push_back({fmt::format("{}", p.ranks), plot::seconds(p.seconds),
                     fmt::format("{:.2f}", s.speed_up(p)), percent(s.efficiency(p)), percent(s.karp_flatt(p)),
                     std::isfinite(s.serial_share()) ? fmt::format("{:.2f}", s.amdahl(p.ranks)) : "-",
                     percent(share_of_communication(p)), percent(p.imbalance)});
  return table;
}

std::string verdict(const Scaling& s) {
  const double serial = s.serial_share();
  std::string words;
  if (std::isfinite(serial))
    words = fmt::format(
        "Amdahl's law fits best with a serial share of {}{} ", percent(serial),
        serial > 0.0005
            ? fmt::format(": at most {:.1f} times faster, however many ranks there are.", 1 / serial)
            : ": these points show no limit.");
  if (!s.has_cores(s.points.back()))
    words += fmt::format(
        "This host has {} core{}; the points with more ranks say what sharing them costs, and do not "
        "count for the fit.",
        s.cores, s.cores > 1 ? "s" : "");
  return words;
}

template <class Get>
plot::Line line_of(const Scaling& s, const char* name, const char* color, plot::Stroke stroke, Get get) {
  plot::Line line{.name = name, .color = color, .stroke = stroke, .x = {}, .y = {}};
  for (const ScalingPoint& p : s.points) {
    line.x.push_back(p.ranks);
    line.y.push_back(get(p));
  }
  return line;
}

void add_speed_up(Page& page, const Scaling& s) {
  page.section("Speed-up", "T(1) / T(p), the same work on p ranks. " + verdict(s));
  plot::LinePlot plot{.x_label = "ranks", .y_label = "speed-up", .lines = {}, .y_from_zero = true};
  plot.lines.push_back(
      line_of(s, "measured", plot::kBlue, plot::Stroke::Dots, [&](const auto& p) { return s.speed_up(p); }));
  plot.lines.push_back(
      line_of(s, "ideal", plot::kGrey, plot::Stroke::Dashed, [](const auto& p) { return p.ranks; }));
  plot::Line fit{
      .name = "Amdahl's fit", .color = plot::kOrange, .stroke = plot::Stroke::Solid, .x = {}, .y = {}};
  constexpr int kPoints = 100;
  for (int i = 0; i <= kPoints; ++i) {
    fit.x.push_back(1 + (s.points.back().ranks - 1.0) * i / kPoints);
    fit.y.push_back(s.amdahl(fit.x.back()));
  }
  plot.lines.push_back(std::move(fit));
  page.picture("speed-up", svg(plot));
}

void add_shares(Page& page, const Scaling& s) {
  page.section(
      "Efficiency and what it is lost to",
      "Efficiency is speed-up / p. The Karp-Flatt fraction is the serial share that would explain a point "
      "alone: where it grows with p, communication and imbalance cost more with every rank; where it stays, "
      "work that is not shared out is the limit.");
  plot::LinePlot plot{.x_label = "ranks", .y_label = "%", .lines = {}, .y_from_zero = true};
  auto add = [&](const char* name, const char* color, auto get) {
    plot.lines.push_back(
        line_of(s, name, color, plot::Stroke::Dots, [&](const auto& p) { return 100 * get(p); }));
  };
  add("efficiency", plot::kBlue, [&](const auto& p) { return s.efficiency(p); });
  add("Karp-Flatt", plot::kGreen, [&](const auto& p) { return s.karp_flatt(p); });
  add("communication", plot::kRed, share_of_communication);
  add("imbalance", plot::kPurple, [](const auto& p) { return p.imbalance; });
  page.picture("shares", svg(plot));
}

void add_times(Page& page, const Scaling& s) {
  page.section("Where the time of a step goes",
               "Mean over steps and ranks. Waiting includes the wait for slower ranks.");
  plot::BarPlot plot{.label = "a step",
                     .quantity = plot::Quantity::Seconds,
                     .segments = {{"computing", plot::kBlue}, {"waiting for others", plot::kRed}},
                     .bars = {}};
  for (const ScalingPoint& p : s.points)
    plot.bars.push_back({.label = fmt::format("{} rank{}", p.ranks, p.ranks > 1 ? "s" : ""),
                         .values = {p.computing, p.waiting}});
  page.picture("times", svg(plot));
}

}  // namespace

double Scaling::karp_flatt(const ScalingPoint& point) const {
  if (point.ranks == 1) return NAN;
  return (1 / speed_up(point) - 1.0 / point.ranks) / (1 - 1.0 / point.ranks);
}

double Scaling::serial_share() const {
  // T(p)/T(1) - 1/p = f (1 - 1/p): a line through the origin.
  double products = 0, squares = 0;
  for (const ScalingPoint& p : points) {
    if (!has_cores(p)) continue;
    const double x = 1 - 1.0 / p.ranks;
    products += x * (1 / speed_up(p) - 1.0 / p.ranks);
    squares += x * x;
  }
  return squares > 0 ? std::clamp(products / squares, 0.0, 1.0) : NAN;
}

double Scaling::amdahl(double ranks) const {
  const double serial = serial_share();
  return 1 / (serial + (1 - serial) / ranks);
}

std::string scaling_table(const Scaling& scaling) {
  const auto table = rows(scaling);
  std::vector<std::size_t> widths(table.front().size());
  for (const auto& row : table)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const auto& row : table) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c)
      line +=
          c == 1 ? fmt::format("  {:<{}}", row[c], widths[c]) : fmt::format("  {:>{}}", row[c], widths[c]);
    text += line + "\n";
  }
  return text + verdict(scaling) + "\n";
}

std::string scaling_json(const Scaling& s) {
  std::string text;
  for (const ScalingPoint& p : s.points)
    text += nlohmann::json({{"ranks", p.ranks},
                            {"layout", p.layout},
                            {"seconds", p.seconds},
                            {"speed_up", s.speed_up(p)},
                            {"efficiency", s.efficiency(p)},
                            {"karp_flatt", s.karp_flatt(p)},
                            {"amdahl_serial_share", s.serial_share()},
                            {"computing_seconds", p.computing},
                            {"waiting_seconds", p.waiting},
                            {"imbalance", p.imbalance},
                            {"cores", s.cores}})
                .dump() +
            "\n";
  return text;
}

std::string scaling_page(const Scaling& scaling, const std::string& title, const std::string& command) {
  Page page("Scaling", title);
  page.command(command);
  page.table(rows(scaling), 1);
  add_speed_up(page, scaling);
  add_shares(page, scaling);
  add_times(page, scaling);
  return page.finish();
}

}  // namespace trainer
