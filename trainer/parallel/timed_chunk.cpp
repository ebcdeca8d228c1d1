// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/timed_chunk.hpp"

#include <cstring>
#include <thread>

namespace trainer {

namespace {

// A block's way through the tensor-parallel group: its two halves each enter once and leave once.
Array wait_as_block(const Pass& pass, Array x, std::chrono::duration<double> time) {
  for (int half = 0; half < 2; ++half) {
    Array room;
    const Array& whole = pass.tensor.enter(x, room);
    std::this_thread::sleep_for(time / 2);
    if (&whole != &x) x = std::move(room);
    x = pass.tensor.leave(std::move(x));
  }
  return x;
}

Array zeros(const Pass& pass) {
  Array x = pass.activation(pass.own_tokens() * pass.shape.width);
  x.fill_zero();
  return x;
}

}  // namespace

Array TimedChunk::forward(const Pass& pass, const MicroBatch&, Array x, float, double&) {
  std::size_t unit = first_unit_;
  auto use = [&] {
    states_.acquire(unit);
    states_.release(unit++);
  };
  if (shape_.first) {
    use();
    x = zeros(pass);
  }
  for (Index i = 0; i < shape_.blocks.count; ++i) {
    use();
    x = wait_as_block(pass, std::move(x), block_time_);
  }
  if (!shape_.last) return x;
  use();
  return {};
}

Array TimedChunk::backward(const Pass& pass, const MicroBatch&, Array gradient, bool last) {
  std::size_t unit = first_unit_ + static_cast<std::size_t>(shape_.blocks.count) + (shape_.first ? 1 : 0);
  const bool ends_wait = last && ties_across(model_, shape_);
  auto leave_zero_gradient = [&](bool waits) {
    UnitGradient unit_gradient = states_.gradient(unit);
    if (!unit_gradient.accumulate)
      std::memset(unit_gradient.data, 0,
                  static_cast<std::size_t>(layouts_[unit - first_unit_].count() * size_of(pass.type())));
    if (!waits) states_.done(unit, last);
    --unit;
  };
  if (shape_.last) {
    leave_zero_gradient(ends_wait);
    gradient = zeros(pass);
  } else {
    --unit;
  }
  for (Index i = 0; i < shape_.blocks.count; ++i) {
    states_.acquire(unit);
    gradient = wait_as_block(pass, std::move(gradient), 2 * block_time_);
    states_.release(unit);
    leave_zero_gradient(false);
  }
  if (!shape_.first) return gradient;
  leave_zero_gradient(ends_wait);
  return {};
}

}  // namespace trainer
