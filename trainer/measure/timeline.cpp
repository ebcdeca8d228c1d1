// SPDX-License-Identifier: BSD-3-Clause
#include "measure/timeline.hpp"

namespace trainer {

const char* name_of(Activity activity) {
  switch (activity) {
    case Activity::Forward:
      return "forward";
    case Activity::Backward:
      return "backward";
    case Activity::Update:
      return "update";
    case Activity::Evaluate:
      return "evaluate";
    case Activity::Wait:
      return "wait";
  }
  return "?";
}

void Timeline::add(const Span& span) {
  seconds_[static_cast<std::size_t>(span.activity)] += span.end - span.begin;
  if (keeps_) spans_.push_back(span);
}

}  // namespace trainer
