// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "collectives.hpp"
#include "options.hpp"

namespace bench {

/// One place (out of place or in place) of a row.
struct Measurement {
  double microseconds = 0;
  std::optional<std::size_t> wrong;  // none: not checked
};

/// nccl-tests' table on stdout, and the same as JSON. Only the process of rank 0 writes.
class Report {
 public:
  Report(const Options& options, const std::string& program, Kind kind, int ranks, bool writes);
  void header(const std::vector<std::string>& rank_lines);
  void row(const Problem& problem, const Measurement& out_of_place, const Measurement& in_place);
  /// The closing lines and the JSON file; false when it could not be written.
  bool conclude();
  std::size_t wrong() const { return wrong_; }

 private:
  void line(const std::string& text) const;
  nlohmann::json place(const Problem& problem, const Measurement& measurement);

  const Options& options_;
  std::string program_;
  Kind kind_;
  int ranks_;
  bool writes_;
  double bandwidth_sum_ = 0;
  int bandwidth_count_ = 0;
  std::size_t wrong_ = 0;
  nlohmann::json json_;
};

}  // namespace bench
