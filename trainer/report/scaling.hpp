// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <vector>

namespace trainer {

/// The same work on several ranks.
struct ScalingPoint {
  int ranks;
  std::string layout;
  double seconds;    ///< of a step, in the median
  double computing;  ///< of a step, mean over ranks and steps
  double waiting;    ///< the same: share of communication is waiting / (computing + waiting)
  double imbalance;  ///< how much longer the slowest rank computes than the mean, as a share
};

/// What a list of points, the first of one rank, says of the work.
struct Scaling {
  std::vector<ScalingPoint> points;
  int cores;  ///< of rank 0's host

  double speed_up(const ScalingPoint& point) const { return points.front().seconds / point.seconds; }
  double efficiency(const ScalingPoint& point) const { return speed_up(point) / point.ranks; }
  /// The serial share that would explain this point alone (Karp and Flatt 1990); NaN for one rank.
  double karp_flatt(const ScalingPoint& point) const;
  /// Whether each rank of the point has a core to itself. What more ranks than cores measure is not the
  /// work's serial share.
  bool has_cores(const ScalingPoint& point) const { return point.ranks <= cores; }
  /// The serial share f that fits T(p) = T(1) (f + (1-f)/p) best to the points that have cores, by least
  /// squares of T(p)/T(1), within 0 and 1 (Amdahl 1967). NaN where none but one rank has.
  double serial_share() const;
  /// Amdahl's speed-up with it.
  double amdahl(double ranks) const;
};

/// Lines of a table for people.
std::string scaling_table(const Scaling& scaling);
/// A line of JSON for each point.
std::string scaling_json(const Scaling& scaling);
/// A page of HTML that needs no other file.
std::string scaling_page(const Scaling& scaling, const std::string& title, const std::string& command);

}  // namespace trainer
