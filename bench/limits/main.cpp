// SPDX-License-Identifier: BSD-3-Clause
//
// limits: prints what the machine can do at best, as a table for people and as JSON for bench/compare.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "measure.hpp"
#include "reduce/kernels.hpp"

namespace {

using nlohmann::json;

std::string in_words(std::size_t bytes) {
  if (bytes >= 1U << 20) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1U << 10) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

json measure_rates(const std::vector<std::size_t>& sizes, int cores) {
  struct Column {
    std::string key, title;
    std::function<double(std::size_t, bool)> measure;
  };
  std::vector<Column> columns{
      {"copy", "copy, 1 core", [](auto bytes, bool s) { return limits::one_core(bytes, 1, 1, s); }},
      {"add2", "add 2, 1 core", [](auto bytes, bool s) { return limits::one_core(bytes, 2, 1, s); }},
      {"add4", "add 4, 1 core", [](auto bytes, bool s) { return limits::one_core(bytes, 4, 1, s); }},
      {"copy_all", fmt::format("copy, {} cores", cores), limits::all_cores_copying},
      {"share_all", fmt::format("share, {} cores", cores), limits::all_cores_sharing}};
  fmt::print(
      "\nGB/s read and written, by the size of each buffer; second number: stores bypass the cache\n{:>10}",
      "size");
  for (const Column& column : columns) fmt::print(" {:>16}", column.title);
  fmt::print("\n");
  json rows = json::array();
  for (std::size_t bytes : sizes) {
    json row{{"bytes", bytes}};
    fmt::print("{:>10}", in_words(bytes));
    for (const Column& column : columns) {
      double cached = column.measure(bytes, false);
      double streaming = column.measure(bytes, true);
      row[column.key] = {{"cached", cached}, {"streaming", streaming}};
      fmt::print(" {:>8.1f} {:>7.1f}", cached, streaming);
      std::fflush(stdout);
    }
    fmt::print("\n");
    rows.push_back(row);
  }
  fmt::print(
      "share: every core adds its part of all inputs into all outputs, as the best all-reduce would\n");
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Measures this machine's limits: memory rates of one core and of all, a cache line's way between two\n"
      "cores, a sleeper's way back to work. Best of several samples each; takes about half a minute."};
  std::string file;
  std::vector<std::size_t> sizes{4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 128 << 20, 256 << 20};
  app.add_option("--json", file, "Also write the numbers there");
  app.add_option("--sizes", sizes, "Bytes of a buffer, separated by commas")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{256}, std::size_t{4} << 30));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::ofstream out(file);  // before the measuring, which would be in vain
  if (!file.empty() && !out) {
    fmt::print(stderr, "cannot write {}\n", file);
    return 1;
  }
  try {
    auto cores = static_cast<int>(limits::processors().size());
    json result{{"cores", cores}, {"kernels", tutti::kernel_target_name()}};
    fmt::print("{} cores, {} kernels\n", cores, tutti::kernel_target_name());
    if (cores > 1) {
      result["line_hand_over_us"] = limits::line_hand_over();
      result["futex_wake_up_us"] = limits::futex_wake_up(false);
      fmt::print("a cache line to another core  {:>8.3f} us\nfutex wake-up, other core     {:>8.3f} us\n",
                 result["line_hand_over_us"].get<double>(), result["futex_wake_up_us"].get<double>());
    }
    result["futex_wake_up_one_core_us"] = limits::futex_wake_up(true);
    fmt::print("futex wake-up, same core      {:>8.3f} us\n",
               result["futex_wake_up_one_core_us"].get<double>());
    result["rates"] = measure_rates(sizes, cores);
    if (file.empty()) return 0;
    out << result.dump(1) << '\n';
    if (out.flush()) return 0;
    fmt::print(stderr, "cannot write {}\n", file);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  return 1;
}
