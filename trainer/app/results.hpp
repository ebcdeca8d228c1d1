// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <optional>

#include "app/output_file.hpp"
#include "app/roles.hpp"

namespace trainer {

/// What a run leaves besides checkpoints: the files of --trace and --report, and each rank's measurement in
/// --metrics.
class Results {
 public:
  /// `writes`: on rank 0, which finds here whether the files can be written. Throws Error.
  Results(const Options& options, bool writes);

  /// Collective; after the last step. Throws Error.
  void write(Role& role);

 private:
  const Options& options_;
  std::optional<OutputFile> trace_, report_;
};

}  // namespace trainer
