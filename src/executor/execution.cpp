// SPDX-License-Identifier: BSD-3-Clause
#include "executor/execution.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"

namespace tutti {
namespace {

// Below this an offered message costs more in waiting for the reader than a copy into a slot does.
constexpr std::size_t kLeastOffer = 4096;

void copy(void* destination, const void* source, std::size_t bytes, bool streaming) {
  if (destination == source) return;  // the in-place form
  if (streaming)
    copy_streaming(destination, source, bytes);
  else
    std::memcpy(destination, source, bytes);
}

}  // namespace

void Execution::start(const Plan& plan, const void* input, void* output, const CallHeader& header,
                      std::uint64_t scalar) {
  plan_ = &plan;
  input_ = static_cast<const std::byte*>(input);
  output_ = static_cast<std::byte*>(output);
  header_ = header;
  scalar_ = scalar;
  if (scratch_.size() < plan.scratch_bytes) scratch_.resize(plan.scratch_bytes);
  track_count_ = plan.tracks.size();
  if (cursors_.size() < track_count_) cursors_.resize(track_count_);
  for (std::size_t t = 0; t < track_count_; ++t) {
    Cursor& cursor = cursors_[t];
    cursor.track = &plan.tracks[t];
    cursor.step = cursor.round = cursor.arrived = 0;
    if (cursor.operands.size() < plan.most_operands) cursor.operands.resize(plan.most_operands);
  }
  done_ = track_count_ == 0;
}

bool Execution::progress() {
  bool moved = false;
  bool finished = true;
  for (std::size_t t = 0; t < track_count_; ++t) {
    Cursor& cursor = cursors_[t];
    // One slice of a track, then the next track: none fills the lanes while another could empty them.
    if (!cursor.done() && advance(cursor)) moved = true;
    finished = finished && cursor.done();
  }
  if (finished && !done_ && settled()) {
    done_ = true;
    moved = true;
  }
  return moved;
}

bool Execution::settled() const {
  return std::all_of(plan_->offering.begin(), plan_->offering.end(),
                     [](Outlet* outlet) { return outlet->has_settled(); });
}

std::vector<Blocker> Execution::blockers() const {
  std::vector<Blocker> result;
  if (done_) return result;
  for (std::size_t t = 0; t < track_count_; ++t) {
    const Cursor& cursor = cursors_[t];
    if (cursor.done()) continue;
    const PlanStep& step = cursor.track->steps[cursor.step];
    if (cursor.arrived < step.inlets.size())
      result.push_back({step.inlets[cursor.arrived]->source(), true});
    else if (step.outlet != nullptr)
      for (int destination : step.outlet->destinations()) result.push_back({destination, false});
  }
  if (result.empty())
    for (Outlet* outlet : plan_->offering)
      if (!outlet->has_settled())
        for (int destination : outlet->destinations()) result.push_back({destination, false});
  return result;
}

std::byte* Execution::address(const Range& range, std::size_t at) const {
  switch (range.buffer) {
    case Buffer::none:
      return nullptr;
    // The plan never writes to the input (verify); one type for all three keeps the paths below simple.
    case Buffer::input:
      return const_cast<std::byte*>(input_) + range.offset + at;
    case Buffer::output:
      return output_ + range.offset + at;
    case Buffer::scratch:
      return const_cast<std::byte*>(scratch_.data()) + range.offset;
  }
  return nullptr;
}

bool Execution::advance(Cursor& cursor) {
  const PlanStep& step = cursor.track->steps[cursor.step];
  std::size_t slice = plan_->shape.slice;
  std::size_t at = cursor.round * slice;
  if (at < step.count && !run_slice(cursor, step, at, std::min(slice, step.count - at))) return false;
  cursor.arrived = 0;
  if (++cursor.step == cursor.track->steps.size()) {
    cursor.step = 0;
    ++cursor.round;
  }
  return true;
}

bool Execution::take_messages(Cursor& cursor, const PlanStep& step, std::size_t bytes) {
  for (; cursor.arrived < step.inlets.size(); ++cursor.arrived) {
    Inlet& inlet = *step.inlets[cursor.arrived];
    ArrivedMessage message;
    if (!inlet.peek(message)) return false;
    if (message.header != header_) throw CallMismatch(inlet.source(), message.header, header_);
    if (message.bytes != bytes)
      fail(ncclInternalError, "rank {} sent a message of {} bytes where {} were expected", inlet.source(),
           message.bytes, bytes);
    auto position = static_cast<int>(cursor.arrived);
    if (step.in && position >= step.own_position) ++position;
    cursor.operands[static_cast<std::size_t>(position)] = message.data;
  }
  return true;
}

bool Execution::run_slice(Cursor& cursor, const PlanStep& step, std::size_t at, std::size_t count) {
  std::size_t element = size_of(plan_->type);
  if (!take_messages(cursor, step, count * element)) return false;
  if (step.outlet != nullptr && !step.outlet->has_room()) return false;
  const std::byte* local = address(step.in, at * element);
  if (step.in) cursor.operands[static_cast<std::size_t>(step.own_position)] = local;
  std::byte* out = address(step.out, at * element);
  if (step.outlet == nullptr)
    combine(cursor, step, count, out, nullptr);
  else
    send(cursor, step, count, local, out);
  for (Inlet* inlet : step.inlets) inlet->release();
  return true;
}

void Execution::send(const Cursor& cursor, const PlanStep& step, std::size_t count, const void* local,
                     std::byte* out) {
  std::size_t bytes = count * size_of(plan_->type);
  if (bytes <= kInlineBytes) {
    alignas(64) std::array<std::byte, kInlineBytes> small;
    combine(cursor, step, count, small.data(), nullptr);
    step.outlet->send_inline(small.data(), bytes, header_);
    if (out != nullptr) std::memcpy(out, small.data(), bytes);
    return;
  }
  const void* source = out != nullptr ? out : local;
  if (step.may_offer && bytes >= kLeastOffer && step.outlet->can_offer(source, bytes)) {
    if (out != nullptr) combine(cursor, step, count, out, nullptr);
    step.outlet->offer(source, bytes, header_);
    return;
  }
  combine(cursor, step, count, step.outlet->slot(), out);
  step.outlet->commit(bytes, header_);
}

// Stores the combination of the step's operands in one or two places (the second may be missing).
void Execution::combine(const Cursor& cursor, const PlanStep& step, std::size_t count, void* first,
                        void* second) {
  int operands = step.operand_count();
  if (operands == 1 && !step.finish && !step.scale) {
    std::size_t bytes = count * size_of(plan_->type);
    if (first != nullptr) copy(first, cursor.operands[0], bytes, plan_->streaming);
    if (second != nullptr) copy(second, cursor.operands[0], bytes, plan_->streaming);
    return;
  }
  ReduceCall call{.operands = cursor.operands.data(),
                  .operand_count = operands,
                  .outputs = {first, second},
                  .output_count = second != nullptr ? 2 : 1,
                  .count = count,
                  .scaled_operand = step.scale ? step.own_position : -1,
                  .scalar = scalar_,
                  .divisor = step.finish ? plan_->shape.ranks : 1,
                  .streaming = plan_->streaming};
  plan_->reduce(call);
}

}  // namespace tutti
