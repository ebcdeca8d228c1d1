// SPDX-License-Identifier: BSD-3-Clause
#include "harness.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace peers {
namespace {

constexpr std::size_t kElement = sizeof(float);

struct Point {
  bench::Kind kind;
  std::size_t bytes, count;
  double microseconds = 0;
  std::size_t iterations = 0, wrong = 0;
};

// A rank has at least one element, however short the row.
std::size_t count_of(bench::Kind kind, std::size_t bytes, int ranks) {
  std::size_t blocks = bench::has_blocks(kind) ? static_cast<std::size_t>(ranks) : 1;
  return std::max<std::size_t>(1, bytes / kElement / blocks);
}

// Microseconds per call over `times` calls back to back, on the slowest rank.
double time_calls(Library& library, const Point& point, const bench::Buffers& buffers, std::size_t times) {
  const auto* send = reinterpret_cast<const float*>(buffers.send);
  auto* receive = reinterpret_cast<float*>(buffers.receive);
  library.largest(0);  // all start together
  auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < times; ++i) library.run(point.kind, send, receive, point.count);
  std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  return library.largest(time.count()) / static_cast<double>(times);
}

void measure_point(Library& library, Point& point, const bench::Buffers& all_buffers, double seconds) {
  // MPI's broadcast has one buffer: the in-place form is what all can be asked for.
  bool in_place = point.kind == bench::Kind::broadcast;
  bench::Problem problem{point.kind,     ncclFloat32,     values::Op::sum, 0,
                         library.rank(), library.ranks(), point.count,     in_place};
  bench::prepare(problem, all_buffers);
  bench::Buffers buffers = bench::arguments(problem, all_buffers);
  time_calls(library, point, buffers, 1);
  point.wrong =
      static_cast<std::size_t>(library.largest(static_cast<double>(bench::check(problem, all_buffers))));
  double wanted = seconds * 1e6;
  for (point.iterations = 1;;) {
    point.microseconds = time_calls(library, point, buffers, point.iterations);
    double total = point.microseconds * static_cast<double>(point.iterations);
    if (total >= 0.7 * wanted) return;
    // The first calls of a size are slow: the estimate from a few of them must not decide alone.
    double more = std::min(10.0, 1.1 * wanted / std::max(total, 1.0));
    point.iterations = static_cast<std::size_t>(static_cast<double>(point.iterations) * more) + 1;
  }
}

void write(const Library& library, const Options& options, const std::vector<Point>& points) {
  if (options.json.empty()) {
    fmt::print("# {}, {} ranks, float32, sum, root 0\n{:<16} {:>12} {:>12} {:>14} {:>10} {:>7}\n",
               library.name(), library.ranks(), "collective", "bytes", "time (us)", "busbw (GB/s)", "calls",
               "#wrong");
    for (const Point& p : points)
      fmt::print(
          "{:<16} {:>12} {:>12.2f} {:>14.3f} {:>10} {:>7}\n", bench::name_of(p.kind), p.bytes, p.microseconds,
          static_cast<double>(p.bytes) * bench::bus_factor(p.kind, library.ranks()) / p.microseconds / 1e3,
          p.iterations, p.wrong);
    return;
  }
  nlohmann::json json{
      {"library", library.name()}, {"ranks", library.ranks()}, {"points", nlohmann::json::array()}};
  for (const Point& p : points)
    json["points"].push_back(
        {{"collective", bench::name_of(p.kind)},
         {"bytes", p.bytes},
         {"microseconds", p.microseconds},
         {"busbw",
          static_cast<double>(p.bytes) * bench::bus_factor(p.kind, library.ranks()) / p.microseconds / 1e3},
         {"iterations", p.iterations},
         {"wrong", p.wrong}});
  std::ofstream file(options.json);
  file << json.dump(1) << '\n';
  if (!file.flush()) throw std::runtime_error("cannot write " + options.json);
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (int k = 0; k < bench::kKindCount; ++k) names.emplace_back(bench::name_of(static_cast<bench::Kind>(k)));
  return names;
}

}  // namespace

Library::~Library() {
  for (void* memory : allocations_) std::free(memory);
}

void* Library::allocate(std::size_t bytes) {
  void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (memory == nullptr) throw std::bad_alloc();
  allocations_.push_back(memory);
  return memory;
}

Options parse(int argc, char** argv, const std::string& program,
              const std::vector<std::pair<std::string, std::string*>>& extra) {
  Options options;
  CLI::App app{program + ": times collectives as bench/compare needs it"};
  std::vector<std::string> names = all_names();
  app.add_option("--collectives", names, "Which, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(all_names()))
      ->default_str("all");
  app.add_option("--sizes", options.sizes, "Bytes of the larger buffer of a rank, separated by commas")
      ->delimiter(',')
      ->required()
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 40));
  app.add_option("--seconds", options.seconds, "Time spent on each point (at least two calls)")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 60.0));
  app.add_option("--json", options.json, "Write the results there instead of a table on stdout");
  for (const auto& [flag, value] : extra) app.add_option(flag, *value);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
  for (const std::string& name : names) options.kinds.push_back(bench::kind_named(name));
  return options;
}

int measure(Library& library, const Options& options) {
  std::size_t most = *std::max_element(options.sizes.begin(), options.sizes.end());
  std::size_t room = std::max(most, kElement * static_cast<std::size_t>(library.ranks()));
  bench::Buffers buffers{static_cast<std::byte*>(library.allocate(room)),
                         static_cast<std::byte*>(library.allocate(room))};
  std::vector<Point> points;
  bool right = true;
  for (bench::Kind kind : options.kinds) {
    if (!library.has(kind)) continue;
    for (std::size_t bytes : options.sizes) {
      Point point{kind, bytes, count_of(kind, bytes, library.ranks())};
      measure_point(library, point, buffers, options.seconds);
      right = right && point.wrong == 0;
      points.push_back(point);
    }
  }
  if (library.rank() == 0) write(library, options, points);
  return right ? 0 : 1;
}

}  // namespace peers
