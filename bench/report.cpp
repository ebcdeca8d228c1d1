// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <fstream>

namespace bench {
namespace {

// The most decimals, up to two, that fit the width.
std::string fit(double value, std::size_t width) {
  for (int decimals = 2; decimals >= 0; --decimals) {
    std::string text = fmt::format("{:.{}f}", value, decimals);
    if (text.size() <= width) return text;
  }
  return fmt::format("{:.1e}", value);
}

double gigabytes_per_second(std::size_t bytes, double microseconds) {
  return microseconds > 0 ? static_cast<double>(bytes) / microseconds / 1e3 : 0;
}

}  // namespace

Report::Report(const Options& options, const std::string& program, Kind kind, int ranks, bool writes)
    : options_(options), program_(program), kind_(kind), ranks_(ranks), writes_(writes) {}

void Report::line(const std::string& text) const {
  if (!writes_) return;
  if (options_.timestamps)
    fmt::print("{:%Y-%m-%d %H:%M:%S} {}\n", fmt::localtime(std::time(nullptr)), text);
  else
    fmt::print("{}\n", text);
  std::fflush(stdout);
}

void Report::header(const std::vector<std::string>& rank_lines) {
  int version = 0;
  ncclGetVersion(&version);
  line(fmt::format("# nccl-tests version 2.19.6 (Tutti) nccl-headers={} nccl-library={}", NCCL_VERSION_CODE,
                   version));
  line(fmt::format("# Collective test starting: {}", program_));
  std::string step = options_.step_factor > 1 ? fmt::format("{}(factor)", options_.step_factor)
                                              : fmt::format("{}(bytes)", options_.step_bytes);
  line(fmt::format(
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} agg iters: {} "
      "validation: {} graph: 0 unalign: {}",
      options_.threads, options_.ranks_per_thread, options_.min_bytes, options_.max_bytes, step,
      options_.warmup, options_.iterations, options_.aggregate, options_.checks, options_.unalign));
  line("#");
  line("# Using devices");
  for (const std::string& rank_line : rank_lines) line(rank_line);
  line("#");
  line(fmt::format(
      "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}           out-of-place                       in-place          ",
      "", "", "", "", ""));
  line(fmt::format(
      "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6} {:>6}  {:>7}  {:>6}  {:>6} {:>6}", "size",
      "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw",
      "#wrong"));
  line(fmt::format(
      "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6} {:>6}  {:>7}  {:>6}  {:>6} {:>6}", "(B)",
      "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", ""));
  json_["version"] = "2.19.6 (Tutti)";
  json_["nccl_version"] = version;
  json_["program"] = program_;
  json_["config"] = {{"nthreads", options_.threads},
                     {"ngpus", options_.ranks_per_thread},
                     {"minbytes", options_.min_bytes},
                     {"maxbytes", options_.max_bytes},
                     {"iters", options_.iterations},
                     {"warmup_iters", options_.warmup},
                     {"agg_iters", options_.aggregate},
                     {"check", options_.checks},
                     {"ranks", ranks_}};
  json_["devices"] = rank_lines;
  json_["results"] = nlohmann::json::array();
}

nlohmann::json Report::place(const Problem& problem, const Measurement& measurement) {
  std::size_t bytes = size_column(kind_, problem.count, problem.element(), ranks_);
  double algorithm = gigabytes_per_second(bytes, measurement.microseconds);
  double bus = algorithm * bus_factor(kind_, ranks_);
  bandwidth_sum_ += bus;
  ++bandwidth_count_;
  wrong_ += measurement.wrong.value_or(0);
  nlohmann::json result = {{"time", measurement.microseconds}, {"alg_bw", algorithm}, {"bus_bw", bus}};
  result["nwrong"] = measurement.wrong ? nlohmann::json(*measurement.wrong) : nlohmann::json("N/A");
  return result;
}

void Report::row(const Problem& p, const Measurement& out_of_place, const Measurement& in_place) {
  std::size_t bytes = size_column(kind_, p.count, p.element(), ranks_);
  std::string op = reduces(kind_) ? name_of(p.op) : "none";
  int root = has_root(kind_) ? p.root : -1;
  std::string text =
      fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", bytes, p.count, name_of(p.type), op, root);
  nlohmann::json row = {
      {"size", bytes}, {"count", p.count}, {"type", name_of(p.type)}, {"redop", op}, {"root", root}};
  for (const auto& [name, measurement] : {std::pair{"out_of_place", out_of_place}, {"in_place", in_place}}) {
    nlohmann::json result = place(p, measurement);
    text += fmt::format("  {:>7}  {:>6}  {:>6}  {:>5}", fit(measurement.microseconds, 7),
                        fit(result["alg_bw"].get<double>(), 6), fit(result["bus_bw"].get<double>(), 6),
                        measurement.wrong ? std::to_string(*measurement.wrong) : "N/A");
    row[name] = std::move(result);
  }
  line(text);
  json_["results"].push_back(std::move(row));
}

bool Report::conclude() {
  double average = bandwidth_count_ != 0 ? bandwidth_sum_ / bandwidth_count_ : 0;
  line(fmt::format("# Out of bounds values : {} {}", wrong_, wrong_ == 0 ? "OK" : "FAILED"));
  line(fmt::format("# Avg bus bandwidth    : {:g}", average));
  line("#");
  line(fmt::format("# Collective test concluded: {}", program_));
  if (!writes_ || options_.json.empty()) return true;
  json_["out_of_bounds"] = wrong_;
  json_["average_bus_bandwidth"] = average;
  std::ofstream file(options_.json);
  file << json_.dump(2) << '\n';
  file.close();
  if (file) return true;
  fmt::print(stderr, "{}: {} could not be written\n", program_, options_.json);
  return false;
}

}  // namespace bench
