// SPDX-License-Identifier: BSD-3-Clause
#include "report/measurement.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace trainer {

namespace {

using Json = nlohmann::json;

// JSON has no NaN: null.
double number(const Json& value) { return value.is_null() ? NAN : value.get<double>(); }

Json json_of(const Measurement& m) {
  Json memory = Json::array(), sent = Json::array(), waits = Json::array();
  for (const auto& held : m.memory)
    memory.push_back({{"use", held.use}, {"largest_bytes", held.largest}, {"formula_bytes", held.formula}});
  for (const auto& entry : m.sent)
    sent.push_back({{"group", entry.group},
                    {"collective", entry.collective},
                    {"calls", entry.calls},
                    {"bytes", entry.bytes},
                    {"formula_bytes", entry.formula},
                    {"formula", entry.what}});
  for (const auto& wait : m.waits) waits.push_back({{"group", wait.group}, {"seconds", wait.seconds}});
  return {{"name", m.name},   {"seconds_a_step", m.seconds}, {"computing_seconds_a_step", m.computing()},
          {"memory", memory}, {"sent_a_step", sent},         {"waited_a_step", waits}};
}

std::string packed(const Measurement& m) {
  Json json = json_of(m);
  Json& spans = json["spans"] = Json::array();
  for (const auto& s : m.spans) spans.push_back({s.activity, s.of, s.micro_batch, s.chunk, s.begin, s.end});
  return json.dump();
}

Measurement unpacked(const std::string& text) {
  const Json json = Json::parse(text);
  Measurement m{.name = json["name"],
                .seconds = json["seconds_a_step"],
                .memory = {},
                .sent = {},
                .waits = {},
                .spans = {}};
  for (const Json& held : json["memory"])
    m.memory.push_back({held["use"], held["largest_bytes"], number(held["formula_bytes"])});
  for (const Json& sent : json["sent_a_step"])
    m.sent.push_back({sent["group"], sent["collective"], sent["calls"], sent["bytes"],
                      number(sent["formula_bytes"]), sent["formula"]});
  for (const Json& wait : json["waited_a_step"]) m.waits.push_back({wait["group"], wait["seconds"]});
  for (const Json& s : json["spans"]) m.spans.push_back({s[0], s[1], s[2], s[3], s[4], s[5]});
  return m;
}

}  // namespace

double Measurement::waiting() const {
  double sum = 0;
  for (const Waited& wait : waits) sum += wait.seconds;
  return sum;
}

Meter::Traffics Meter::traffic() const {
  Traffics sums;
  for (const RankGroup* group : groups_) {
    if (group->size() == 1) continue;
    Traffic& sum = sums[group->name()];
    for (std::size_t c = 0; c < kCollectiveCount; ++c) {
      sum.entries[c].calls += group->traffic().entries[c].calls;
      sum.entries[c].sent += group->traffic().entries[c].sent;
    }
    sum.blocked += group->traffic().blocked;
  }
  return sums;
}

void Meter::begin(bool forgets) {
  if (forgets) timeline_.forget();
  before_ = traffic();
  begin_ = timeline_.now();
}

void Meter::end(Index steps) {
  end_ = timeline_.now();
  seconds_ += end_ - begin_;
  steps_ += steps;
  for (const auto& [name, after] : traffic()) {
    Traffic& sum = sum_[name];
    const Traffic& before = before_[name];
    for (std::size_t c = 0; c < kCollectiveCount; ++c) {
      sum.entries[c].calls += after.entries[c].calls - before.entries[c].calls;
      sum.entries[c].sent += after.entries[c].sent - before.entries[c].sent;
    }
    sum.blocked += after.blocked - before.blocked;
  }
}

Measurement Meter::measurement(std::string name, const Memory& memory, const Options& options,
                               RankPlace place) const {
  const double steps = static_cast<double>(std::max<Index>(steps_, 1));
  Measurement m{.name = std::move(name),
                .seconds = seconds_ / steps,
                .memory = {},
                .sent = {},
                .waits = {},
                .spans = {}};
  const std::array<double, kUseCount> held = expected_memory(options, place);
  for (std::size_t use = 0; use < kUseCount; ++use)
    m.memory.push_back(
        {name_of(static_cast<Use>(use)), static_cast<double>(memory.peak(static_cast<Use>(use))), held[use]});
  const std::vector<ExpectedTraffic> expected = expected_traffic(options, place);
  for (const auto& [group, traffic] : sum_) {
    m.waits.push_back({group, traffic.blocked / steps});
    for (std::size_t c = 0; c < kCollectiveCount; ++c) {
      const Traffic::Entry& entry = traffic.entries[c];
      if (entry.sent == 0) continue;
      const auto formula =
          std::find_if(expected.begin(), expected.end(), [&, &name = group](const ExpectedTraffic& e) {
            return e.group == name && e.collective == static_cast<Collective>(c);
          });
      const bool known = formula != expected.end();
      m.sent.push_back({group, name_of(static_cast<Collective>(c)), static_cast<double>(entry.calls) / steps,
                        entry.sent / steps, known ? formula->bytes : NAN, known ? formula->what : ""});
    }
  }
  return m;
}

double shift_to_rank_0(RankGroup& job, const Timeline& timeline) {
  double same_moment = 0;
  job.all_reduce(&same_moment, 1);
  const double now = timeline.now();
  double now_at_0 = job.rank() == 0 ? now : 0;
  job.all_reduce(&now_at_0, 1);
  return now_at_0 - now;
}

std::vector<Measurement> gather_measurements(RankGroup& job, Measurement own, const Meter& meter,
                                             const Timeline& timeline, Window window, bool trains) {
  const double shift = shift_to_rank_0(job, timeline);
  const double first = meter.last_begin() + shift, last = meter.last_end() + shift;
  constexpr double kNever = std::numeric_limits<double>::lowest();
  double most[] = {kNever, kNever, kNever, kNever};
  if (trains) std::ranges::copy(std::array{-first, last, -last, own.seconds}, most);
  job.all_reduce(most, 4, ncclMax);
  const bool swing = window == Window::FullSwing;
  const double end = swing ? -most[2] : most[1], begin = swing ? end - 1.5 * most[3] : -most[0];
  for (const Span& span : timeline.spans())
    if (span.end + shift > begin && span.begin + shift < end)
      own.spans.push_back({name_of(span.activity), span.of, span.micro_batch, span.chunk,
                           span.begin + shift - begin, span.end + shift - begin});
  std::vector<Measurement> all;
  for (const std::string& text : job.gather(packed(own))) all.push_back(unpacked(text));
  return all;
}

std::string to_json_line(const Measurement& measurement, int rank) {
  Json json = json_of(measurement);
  json["rank"] = rank;
  return json.dump();
}

}  // namespace trainer
