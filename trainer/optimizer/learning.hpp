// SPDX-License-Identifier: BSD-3-Clause
//
// The room of the optimizer: how fast to learn, when to scale gradients down, and how to keep fp16's in
// range.
#pragma once
#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/kernels.hpp"

namespace trainer {

struct LearningOptions {
  float rate = 1e-3F, least_rate = 1e-4F;
  Index warm_up = 10;  ///< steps
  float beta1 = 0.9F, beta2 = 0.95F, epsilon = 1e-8F, decay = 0.1F;
  float clip = 1.0F;  ///< largest global norm of the gradients; 0 for no clipping
};

/// The rate of a step (from 0): linear warm-up, then half a cosine down to the least rate at the last of
/// `steps`.
inline float learning_rate(const LearningOptions& options, Index step, Index steps) {
  if (step < options.warm_up)
    return options.rate * static_cast<float>(step + 1) / static_cast<float>(options.warm_up);
  double all = std::max<double>(1.0, static_cast<double>(steps - options.warm_up));
  double progress = std::min(1.0, static_cast<double>(step - options.warm_up) / all);
  return options.least_rate + static_cast<float>(0.5 * (1 + std::cos(std::numbers::pi * progress))) *
                                  (options.rate - options.least_rate);
}

/// What a gradient of this norm is multiplied with, so that its norm is options.clip at most.
inline float clip_factor(const LearningOptions& options, double norm) {
  return options.clip > 0 && norm > static_cast<double>(options.clip)
             ? options.clip / static_cast<float>(norm)
             : 1.0F;
}

/// `updates` that were made before this one.
inline AdamW adamw_of(const LearningOptions& options, float rate, Index updates, float gradient_scale) {
  auto power = [&](float beta) {
    return static_cast<float>(std::pow(beta, static_cast<double>(updates + 1)));
  };
  return {.rate = rate,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .decay = options.decay,
          .correction1 = 1 - power(options.beta1),
          .correction2 = 1 - power(options.beta2),
          .gradient_scale = gradient_scale};
}

/// Dynamic loss scaling (Micikevicius et al. 2018): gradients of fp16 are made larger so that small ones do
/// not vanish; a step whose gradients overflow is skipped and the scale halved, and doubled after 200 good
/// ones.
class LossScale {
 public:
  explicit LossScale(bool dynamic) : dynamic_(dynamic), scale_(dynamic ? 65536.0F : 1.0F) {}
  float value() const { return scale_; }
  Index good_steps() const { return good_steps_; }
  /// Goes on where another run was; one without scaling had a scale of 1.
  void resume(float scale, Index good_steps) {
    if (!dynamic_ || scale == 1.0F) return;
    scale_ = scale;
    good_steps_ = good_steps;
  }
  /// Whether the step's update is to be made.
  bool accept(bool finite) {
    if (!dynamic_) return true;
    if (!finite) {
      scale_ = std::max(1.0F, scale_ / 2);
      good_steps_ = 0;
      return false;
    }
    if (++good_steps_ % 200 == 0) scale_ = std::min(scale_ * 2, 16777216.0F);
    return true;
  }

 private:
  bool dynamic_;
  float scale_;
  Index good_steps_ = 0;
};

}  // namespace trainer
