// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "nccl.h"
#include "values.hpp"

namespace bench {

/// nccl-tests' flags.
struct Options {
  int threads = 1, ranks_per_thread = 1;
  std::size_t min_bytes = 32 << 20, max_bytes = 32 << 20, step_bytes = 1 << 20;
  double step_factor = 0;  // 0: add step_bytes
  int iterations = 20, warmup = 1, aggregate = 1, checks = 1, cycles = 1;
  std::vector<values::Op> ops{values::Op::sum};
  std::vector<ncclDataType_t> types{ncclFloat32};
  int root = 0;  // -1: all
  int average = 1;
  bool parallel_init = false, blocking = false, timestamps = false;
  std::size_t unalign = 0;
  int registration = 0;
  double timeout = 0;
  std::string json;

  std::vector<std::size_t> sizes() const;
};

std::string name_of(ncclDataType_t type);
std::string name_of(values::Op op);

/// Exits with --help's 0 or, for a wrong flag, 2; `reports`: this process writes messages.
Options parse_options(int argc, char** argv, const std::string& program, bool reports);

}  // namespace bench
