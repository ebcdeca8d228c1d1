// SPDX-License-Identifier: BSD-3-Clause
#include "report/trace.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/measurement.hpp"

namespace trainer {

namespace {

std::string name_of(const Span& span) {
  std::string name = name_of(span.activity);
  if (*span.of != '\0') name += fmt::format(" for {}", span.of);
  if (span.micro_batch >= 0) name += fmt::format(" {}", span.micro_batch);
  return name;
}

// The events of one rank, each followed by a comma.
std::string events_of(int rank, const Timeline& timeline, double shift, const std::string& label) {
  std::string text;
  auto append = [&](const nlohmann::json& event) { text += event.dump() + ",\n"; };
  append({{"ph", "M"},
          {"name", "process_name"},
          {"pid", rank},
          {"args", {{"name", fmt::format("rank {}: {}", rank, label)}}}});
  append({{"ph", "M"}, {"name", "process_sort_index"}, {"pid", rank}, {"args", {{"sort_index", rank}}}});
  for (const Span& span : timeline.spans()) {
    nlohmann::json event = {{"ph", "X"},
                            {"name", name_of(span)},
                            {"cat", name_of(span.activity)},
                            {"pid", rank},
                            {"tid", 0},
                            {"ts", (span.begin + shift) * 1e6},
                            {"dur", (span.end - span.begin) * 1e6}};
    if (span.micro_batch >= 0) event["args"] = {{"micro-batch", span.micro_batch}, {"chunk", span.chunk}};
    append(event);
  }
  return text;
}

}  // namespace

std::string trace_of(RankGroup& job, const Timeline& timeline, const std::string& label) {
  const double shift = shift_to_rank_0(job, timeline);
  const std::vector<std::string> parts = job.gather(events_of(job.rank(), timeline, shift, label));
  if (job.rank() != 0) return "";
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (const std::string& part : parts) text += part;
  text.resize(text.size() - 2);  // the last comma
  return text + "\n]}\n";
}

}  // namespace trainer
