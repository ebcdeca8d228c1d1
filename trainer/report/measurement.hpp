// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/memory.hpp"
#include "parallel/rank_group.hpp"
#include "report/formulas.hpp"

namespace trainer {

/// What one rank measured of its training steps, for people and programs. Formulas are NaN where there is
/// none.
struct Measurement {
  struct Held {
    std::string use;
    double largest, formula;  ///< bytes
  };
  struct Sent {
    std::string group, collective;
    double calls, bytes;  ///< of a step, in the mean
    double formula;
    std::string what;  ///< the formula in words
  };
  struct Waited {
    std::string group;
    double seconds;  ///< of a step, in the mean
  };
  /// Of the step that is shown, on rank 0's clock; see Span.
  struct Shown {
    std::string activity, of;
    Index micro_batch, chunk;
    double begin, end;
  };
  std::string name;  ///< of the rank: its place in the layout
  double seconds;    ///< of a step, in the mean
  std::vector<Held> memory;
  std::vector<Sent> sent;
  std::vector<Waited> waits;
  std::vector<Shown> spans;

  double waiting() const;
  /// Neither waiting nor idle between steps.
  double computing() const { return seconds - waiting(); }
};

/// Measures one rank's steps: what its groups send and wait between begin() and end().
class Meter {
 public:
  /// All must outlive it.
  Meter(std::vector<const RankGroup*> groups, Timeline& timeline)
      : groups_(std::move(groups)), timeline_(timeline) {}

  /// `forgets`: spans of earlier steps are not needed any more.
  void begin(bool forgets);
  void end(Index steps = 1);

  /// The measurement so far, without spans.
  Measurement measurement(std::string name, const Memory& memory, const Options& options,
                          RankPlace place) const;
  /// When the last step began and ended.
  double last_begin() const { return begin_; }
  double last_end() const { return end_; }
  Index steps() const { return steps_; }

 private:
  using Traffics = std::map<std::string, Traffic>;  // by the groups' names
  Traffics traffic() const;

  std::vector<const RankGroup*> groups_;
  Timeline& timeline_;
  Traffics before_, sum_;
  double begin_ = 0, end_ = 0, seconds_ = 0;
  Index steps_ = 0;
};

/// Seconds to add to this rank's times so that they are rank 0's: clocks differ between hosts, and timelines
/// begin at different moments. Collective.
double shift_to_rank_0(RankGroup& job, const Timeline& timeline);

/// The stretch of time of which reports show what all ranks did: the last step, or, where ranks do not keep
/// step, somewhat more than a step until the first of them ended its last one.
enum class Window : std::uint8_t { LastStep, FullSwing };

/// Every rank's measurement, by rank, on rank 0; nothing on the others. With spans of the window, which the
/// ranks that train determine. Collective.
std::vector<Measurement> gather_measurements(RankGroup& job, Measurement own, const Meter& meter,
                                             const Timeline& timeline, Window window, bool trains);
/// As an object of JSON, in one line, without spans.
std::string to_json_line(const Measurement& measurement, int rank);

}  // namespace trainer
