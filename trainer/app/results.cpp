// SPDX-License-Identifier: BSD-3-Clause
#include "app/results.hpp"

#include <fmt/format.h>

#include "report/run_page.hpp"
#include "report/trace.hpp"

namespace trainer {

Results::Results(const Options& options, bool writes) : options_(options) {
  if (!writes) return;
  if (!options.trace.empty()) trace_.emplace("--trace", options.trace);
  if (!options.report.empty()) report_.emplace("--report", report_file(options.report));
}

void Results::write(Role& role) {
  if (!options_.trace.empty()) {
    const std::string text = trace_of(role.job(), role.timeline(), role.name());
    if (trace_) trace_->finish(text);
  }
  if (options_.report.empty() && options_.metrics.empty()) return;
  const std::vector<Measurement> ranks = role.measurements();
  Progress* progress = role.progress();
  if (progress == nullptr) return;
  progress->ranks(ranks);
  if (!report_) return;
  report_->finish(run_page(options_, progress->history(), ranks));
  fmt::print("report in {}\n", report_->path().string());
}

}  // namespace trainer
