// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <vector>

#include "model/tensor.hpp"

namespace trainer {

/// How training went on, as rank 0 saw it.
struct History {
  struct Step {
    Index step;  ///< counted from 1
    double loss, gradient_norm;
    double seconds, waiting;
    double bubble;  ///< share of forward and backward in which the pipeline of rank 0 stood idle
  };
  struct HeldOut {
    Index step;
    double loss;
  };
  std::vector<Step> steps;
  std::vector<HeldOut> held_out;
  double unigram_entropy = 0;  ///< in nats, of the training text
};

}  // namespace trainer
