// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "report/measurement.hpp"

namespace trainer {

/// NaN of nothing; so is what follows.
inline double median(std::vector<double> values) {
  if (values.empty()) return NAN;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

inline double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// How much longer the slowest rank computes than all do in the mean, as a share.
inline double imbalance(std::span<const Measurement> ranks) {
  std::vector<double> computing;
  for (const Measurement& rank : ranks) computing.push_back(rank.computing());
  return *std::max_element(computing.begin(), computing.end()) / mean(computing) - 1;
}

}  // namespace trainer
