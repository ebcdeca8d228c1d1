// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <cstdlib>
#include <iostream>

namespace bench {
namespace {

constexpr std::array kTypeNames = {"int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
                                   "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
constexpr std::array kOpNames = {"sum", "prod", "max", "min", "avg", "mulsum"};

// "8", "64K", "1M", "2G": powers of 1024.
std::size_t parse_bytes(const std::string& text) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  std::string suffix = end;
  double scale = 1;
  if (suffix == "K" || suffix == "k" || suffix == "KB") scale = 1024;
  if (suffix == "M" || suffix == "m" || suffix == "MB") scale = 1024.0 * 1024;
  if (suffix == "G" || suffix == "g" || suffix == "GB") scale = 1024.0 * 1024 * 1024;
  if (end == text.c_str() || (scale == 1 && !suffix.empty() && suffix != "B") || value < 0 ||
      value * scale > 1e15)
    throw CLI::ValidationError("\"" + text + "\" is no size: expected e.g. 8, 64K, 1M, 2G");
  return static_cast<std::size_t>(value * scale);
}

template <class Enum, std::size_t N>
std::vector<Enum> parse_name(const std::string& text, const std::array<const char*, N>& names,
                             const char* what) {
  std::vector<Enum> all;
  std::string known;
  for (std::size_t i = 0; i < N; ++i) {
    if (text == names[i]) return {static_cast<Enum>(i)};
    all.push_back(static_cast<Enum>(i));
    known += std::string(known.empty() ? "" : ", ") + names[i];
  }
  if (text == "all") return all;
  throw CLI::ValidationError("there is no " + std::string(what) + " \"" + text + "\"; there are " + known +
                             " and all");
}

void add_flags(CLI::App& app, Options& o, std::array<std::string, 6>& texts) {
  auto& [min, max, step, op, type, factor] = texts;
  app.add_option("-t,--nthreads", o.threads, "Threads of this process")->check(CLI::Range(1, 4096));
  app.add_option("-g,--ngpus", o.ranks_per_thread, "Ranks that each thread drives")
      ->check(CLI::Range(1, 4096));
  app.add_option("-b,--minbytes", min, "Smallest size (suffixes K, M, G)");
  app.add_option("-e,--maxbytes", max, "Largest size");
  app.add_option("-i,--stepbytes", step, "Add this from size to size");
  app.add_option("-f,--stepfactor", factor, "Multiply by this instead");
  app.add_option("-n,--iters", o.iterations, "Timed iterations")->check(CLI::Range(0, 1 << 30));
  app.add_option("-w,--warmup_iters", o.warmup, "Iterations before, not timed")
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("-m,--agg_iters", o.aggregate, "Operations per iteration, in one group")
      ->check(CLI::Range(1, 100000));
  app.add_option("-c,--check", o.checks, "How often each result is checked (0: not)")
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("-o,--op", op, "sum, prod, max, min, avg, mulsum or all");
  app.add_option("-d,--datatype", type, "int8 ... double, half, bfloat16, f8e4m3, f8e5m2 or all");
  app.add_option("-r,--root", o.root, "Root of rooted collectives (-1: all)")->check(CLI::Range(-1, 32767));
  app.add_option("-z,--blocking", o.blocking, "1: all ranks meet after every operation");
  app.add_option("-a,--average", o.average, "Time reported: 0 rank 0, 1 mean, 2 min, 3 max of the ranks")
      ->check(CLI::Range(0, 3));
  app.add_option("-u,--unalign", o.unalign, "Move all buffers by so many bytes")->check(CLI::Range(0, 4096));
  app.add_flag("-S,--timestamp", o.timestamps, "Put the time before every line");
  app.add_option("-J,--json", o.json, "Write the results to this file too");
  app.add_option("-T,--timeout", o.timeout, "Seconds an operation may stand still (0: for ever)")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("-R,--local_register", o.registration,
                 "0: plain memory, 1: registered, 2: ncclMemAlloc and windows")
      ->check(CLI::Range(0, 2));
  app.add_option("-N,--run_cycles", o.cycles, "Repeat the whole table (0: for ever)")
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("-p,--parallel_init", o.parallel_init,
                 "1: threads join by themselves instead of in one group");
}

}  // namespace

std::string name_of(ncclDataType_t type) { return kTypeNames[static_cast<std::size_t>(type)]; }
std::string name_of(values::Op op) { return kOpNames[static_cast<std::size_t>(op)]; }

std::vector<std::size_t> Options::sizes() const {
  std::vector<std::size_t> result;
  for (std::size_t bytes = min_bytes; bytes <= max_bytes;) {
    result.push_back(bytes);
    std::size_t next = step_factor > 1 ? static_cast<std::size_t>(static_cast<double>(bytes) * step_factor)
                                       : bytes + step_bytes;
    if (next <= bytes) break;
    bytes = next;
  }
  return result;
}

Options parse_options(int argc, char** argv, const std::string& program, bool reports) {
  Options options;
  CLI::App app{program + ": bandwidth of a collective, checked (flags and columns of nccl-tests)"};
  app.footer("Ranks are processes times -t times -g:\n  " + program +
             " -b 8 -e 64M -f 2 -t 4\n  tutti run -n 4 " + program +
             " -b 8 -e 64M -f 2\nThe exit code is 0 when all was right, 1 when a result was wrong or a call "
             "failed, 2 for a wrong flag.");
  std::array<std::string, 6> texts{"32M", "32M", "1M", "sum", "float", ""};
  add_flags(app, options, texts);
  try {
    app.parse(argc, argv);
    options.min_bytes = parse_bytes(texts[0]);
    options.max_bytes =
        app.count("-e") != 0 ? parse_bytes(texts[1]) : std::max(options.min_bytes, parse_bytes(texts[1]));
    options.step_bytes = parse_bytes(texts[2]);
    options.ops = parse_name<values::Op>(texts[3], kOpNames, "operator");
    options.types = parse_name<ncclDataType_t>(texts[4], kTypeNames, "datatype");
    if (!texts[5].empty()) {
      char* end = nullptr;
      options.step_factor = std::strtod(texts[5].c_str(), &end);
      if (*end != '\0' || options.step_factor <= 1) throw CLI::ValidationError("-f must be a number above 1");
    }
    if (options.min_bytes > options.max_bytes) throw CLI::ValidationError("-b is larger than -e");
    if (options.step_factor == 0 && options.step_bytes == 0) throw CLI::ValidationError("-i must be above 0");
  } catch (const CLI::ParseError& error) {
    bool help = error.get_exit_code() == 0;
    std::ofstream nowhere;
    int code = reports ? app.exit(error) : app.exit(error, nowhere, nowhere);
    std::exit(help ? code : 2);
  }
  return options;
}

}  // namespace bench
