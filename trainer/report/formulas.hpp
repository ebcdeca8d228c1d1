// SPDX-License-Identifier: BSD-3-Clause
//
// What the papers' formulas say of a rank's memory and messages, from the options alone: to stand beside what
// was counted.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "model/memory.hpp"
#include "options.hpp"

namespace trainer {

/// A rank's place, as far as formulas ask for it.
struct RankPlace {
  bool serves = false;
  int stage = 0;  ///< of the pipeline
};

/// Bytes by use, without padding; NaN where there is no formula (workspace). Model states are ZeRO's
/// (Rajbhandari et al. 2020); activations those that are stored for backward passes at most at a time, with
/// recomputation one block's beside its inputs.
std::array<double, kUseCount> expected_memory(const Options& options, RankPlace place);

struct ExpectedTraffic {
  std::string group;  ///< as RankGroup::name()
  Collective collective;
  double bytes;      ///< sent by one rank in one step, as a ring does it
  std::string what;  ///< the formula in words
};
/// What a training step sends, without padding, sums of single numbers, and what asynchronous servers send
/// when training ends.
std::vector<ExpectedTraffic> expected_traffic(const Options& options, RankPlace place);

}  // namespace trainer
