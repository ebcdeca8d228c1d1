// SPDX-License-Identifier: BSD-3-Clause
#include "executor/execution.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/copy_few.hpp"
#include "base/error.hpp"

namespace tutti {
namespace {

// Below this an offered message costs more in waiting for the reader than a copy into a slot does.
constexpr std::size_t kLeastOffer = 4096;

constexpr std::size_t kLongestFetch = 1 << 20;  // system calls are few then

// Half of the smallest first cache, and a multiple of every element's size.
constexpr std::size_t kPiece = 16384;

// Rounds after which the kind of stores is thought over.
constexpr std::size_t kSpanRounds = 32;

}  // namespace

void Execution::prepare(const Plan& plan) {
  plan_ = &plan;
  element_ = size_of(plan.type);
  track_count_ = plan.tracks.size();
  if (scratch_.size() < plan.scratch_bytes) scratch_.resize(plan.scratch_bytes);
  if (cursors_.size() < track_count_) cursors_.resize(track_count_);
  for (std::size_t t = 0; t < track_count_; ++t) {
    const PlanTrack& track = plan.tracks[t];
    Cursor& cursor = cursors_[t];
    cursor.begin = track.steps.data();
    cursor.end = cursor.begin + track.steps.size();
    cursor.rounds = track.rounds;
    cursor.ahead.assign(track.steps.size(), 0);
    if (cursor.operands.size() < plan.most_operands) {
      cursor.operands.resize(plan.most_operands);
      cursor.landings.resize(plan.most_operands);
    }
  }
}

void Execution::start(const Plan& plan, const void* input, void* output, const CallHeader& header,
                      std::uint64_t scalar) {
  if (plan_ != &plan) prepare(plan);
  // The plan never writes to the input (verify); one type for all three keeps the paths below simple.
  bases_[static_cast<std::size_t>(Buffer::input)] =
      const_cast<std::byte*>(static_cast<const std::byte*>(input));
  bases_[static_cast<std::size_t>(Buffer::output)] = static_cast<std::byte*>(output);
  bases_[static_cast<std::size_t>(Buffer::scratch)] = scratch_.data();
  header_ = header;
  scalar_ = scalar;
  for_others_ = {plan.for_others, false};
  if (plan.tuner != nullptr) begin_span();
  for (std::size_t t = 0; t < track_count_; ++t) {
    Cursor& cursor = cursors_[t];
    cursor.step = cursor.begin;
    cursor.round = cursor.arrived = 0;
  }
  done_ = track_count_ == 0;
}

void Execution::begin_span() {
  for_others_ = plan_->tuner->choose();
  if (for_others_.timed) started_ = StoreTuner::Clock::now();
}

void Execution::end_span(std::size_t elements) {
  if (for_others_.timed) plan_->tuner->took(for_others_.store, StoreTuner::Clock::now() - started_, elements);
  for_others_ = {plan_->tuner->best(), false};
}

// The steps of a plan whose messages are so short that nothing is left to be done when the last has run.
bool Execution::progress_brief() {
  Cursor& cursor = cursors_[0];
  const PlanStep* before = cursor.step;
  while (run_inline(cursor, *cursor.step, 0, cursor.step->count)) {
    cursor.arrived = 0;
    if (++cursor.step == cursor.end) {
      done_ = true;
      return true;
    }
  }
  return cursor.step != before;
}

bool Execution::progress_tracks() {
  bool moved = plan_->tcp != nullptr && plan_->tcp->progress();
  bool finished = true;
  if (track_count_ == 1) {
    Cursor& cursor = cursors_[0];
    while (!cursor.done() && advance(cursor)) moved = true;
    finished = cursor.done();
  } else {
    // One slice of a track, then the next track: none fills the lanes while another could empty them.
    for (std::size_t t = 0; t < track_count_; ++t) {
      Cursor& cursor = cursors_[t];
      if (!cursor.done() && advance(cursor)) moved = true;
      finished = finished && cursor.done();
    }
  }
  if (finished && (plan_->settling.empty() || settled())) {
    if (for_others_.timed) end_span(cursors_[plan_->span_track].begin->count);
    if (std::exchange(is_ahead_, false))
      for (std::size_t t = 0; t < track_count_; ++t) std::ranges::fill(cursors_[t].ahead, 0);
    done_ = true;
    moved = true;
  }
  return moved;
}

bool Execution::settled() const {
  return std::all_of(plan_->settling.begin(), plan_->settling.end(),
                     [](Outlet* outlet) { return outlet->has_settled(); });
}

std::vector<Blocker> Execution::blockers() const {
  std::vector<Blocker> result;
  if (done_) return result;
  for (std::size_t t = 0; t < track_count_; ++t) {
    const Cursor& cursor = cursors_[t];
    if (cursor.done()) continue;
    const PlanStep& step = *cursor.step;
    if (cursor.arrived < step.inlets.size())
      result.push_back({step.inlets[cursor.arrived]->source(), true});
    else if (step.outlet != nullptr)
      for (int destination : step.outlet->destinations()) result.push_back({destination, false});
  }
  if (result.empty())
    for (Outlet* outlet : plan_->settling)
      if (!outlet->has_settled())
        for (int destination : outlet->destinations()) result.push_back({destination, false});
  return result;
}

bool Execution::takes_from(int rank) const {
  if (done_) return false;
  for (const PlanTrack& track : plan_->tracks)
    for (const PlanStep& step : track.steps)
      for (const Inlet* inlet : step.inlets)
        if (inlet->source() == rank) return true;
  return false;
}

std::byte* Execution::address(const Range& range, std::size_t at) const {
  if (!range) return nullptr;
  std::byte* begin = bases_[static_cast<std::size_t>(range.buffer)] + range.offset;
  return range.buffer == Buffer::scratch ? begin : begin + at;
}

inline bool Execution::advance(Cursor& cursor) {
  const PlanStep& step = *cursor.step;
  std::size_t slice = plan_->shape.slice;
  std::size_t at = cursor.round * slice;
  if (at < step.count && at >= cursor.elements_ahead()) {
    std::size_t count = std::min(slice, step.count - at);
    bool ran = count * element_ <= step.most_inline ? run_inline(cursor, step, at, count)
                                                    : run_slice(cursor, step, at, count);
    if (!ran) return false;
  }
  cursor.arrived = 0;
  if (++cursor.step == cursor.end) {
    cursor.step = cursor.begin;
    ++cursor.round;
    if (plan_->tuner != nullptr && &cursor == &cursors_[plan_->span_track] &&
        cursor.round % kSpanRounds == 0) {
      end_span(kSpanRounds * slice);
      if (cursor.round + kSpanRounds <= plan_->span_rounds) begin_span();
    }
  }
  return true;
}

bool Execution::take_messages(Cursor& cursor, const PlanStep& step, std::size_t at, std::size_t count) {
  std::size_t bytes = count * element_;
  for (; cursor.arrived < step.inlets.size(); ++cursor.arrived) {
    Inlet& inlet = *step.inlets[cursor.arrived];
    ArrivedMessage message;
    void* wanted = step.is_placed ? address(step.out, at * element_) : nullptr;
    if (!inlet.peek(message, bytes, wanted)) return false;
    if (message.header != header_) throw CallMismatch(inlet.source(), message.header, header_);
    auto is_longer = [&] {
      return message.must_be_fetched() && message.bytes > bytes &&
             message.bytes <= (step.count - at) * element_;
    };
    if (message.bytes != bytes && !is_longer())
      fail(ncclInternalError, "rank {} sent a message of {} bytes where {} were expected", inlet.source(),
           message.bytes, bytes);
    auto position = static_cast<int>(cursor.arrived);
    if (step.in && position >= step.own_position) ++position;
    cursor.operands[static_cast<std::size_t>(position)] =
        message.placed ? address(step.out, at * element_) : message.data;
    if (step.answers) cursor.landings[cursor.arrived] = message.landing;
  }
  return true;
}

// Messages that travel with what announces them: the shortest way there is.
inline bool Execution::run_inline(Cursor& cursor, const PlanStep& step, std::size_t at, std::size_t count) {
  if (!step.inlets.empty() && !take_messages(cursor, step, at, count)) return false;
  if (step.outlet != nullptr && !step.outlet->has_room()) return false;
  if (step.in) cursor.operands[static_cast<std::size_t>(step.own_position)] = address(step.in, at * element_);
  std::byte* out = address(step.out, at * element_);
  if (step.is_copy) {
    const void* source = cursor.operands[0];
    if (out != nullptr && out != source) copy_few(out, source, count * element_);
    if (step.outlet != nullptr) step.outlet->send_inline(source, count * element_, header_);
  } else {
    reduce_inline(cursor, step, count, out);
  }
  for (Inlet* inlet : step.inlets) inlet->release();
  return true;
}

void Execution::reduce_inline(const Cursor& cursor, const PlanStep& step, std::size_t count, std::byte* out) {
  alignas(16) std::array<std::byte, kInlineBytes> result;
  std::byte* place = out != nullptr ? out : result.data();
  reduce(step, cursor.operands.data(), count, {place, Store::cached});
  if (step.outlet != nullptr) step.outlet->send_inline(place, count * element_, header_);
}

bool Execution::run_slice(Cursor& cursor, const PlanStep& step, std::size_t at, std::size_t count) {
  if (!take_messages(cursor, step, at, count)) return false;
  if (step.in) cursor.operands[static_cast<std::size_t>(step.own_position)] = address(step.in, at * element_);
  std::byte* out = address(step.out, at * element_);
  if (step.outlet == nullptr && step.operand_count == 1 && cursor.operands[0] == nullptr) {
    std::size_t most = plan_->fetches_ahead ? SIZE_MAX : count * element_;
    go_ahead(cursor, at + step.inlets[0]->fetch(out, most) / element_);
  } else if (step.outlet == nullptr) {
    store(cursor, step, count, {out, step.store});
  } else if (!step.outlet->has_room() || !send(cursor, step, at, count)) {
    return false;
  }
  for (Inlet* inlet : step.inlets) inlet->release();
  return true;
}

// What one message brought or took need not be done in the rounds to come.
void Execution::go_ahead(Cursor& cursor, std::size_t elements) {
  cursor.elements_ahead() = elements;
  is_ahead_ = true;
}

// Whether the step's result can be stored where those who get it want it.
bool Execution::has_landings(const Cursor& cursor, const PlanStep& step) {
  return step.answers &&
         std::none_of(cursor.landings.begin(),
                      cursor.landings.begin() + static_cast<std::ptrdiff_t>(step.inlets.size()),
                      [](const void* landing) { return landing == nullptr; });
}

// False when there is no room for the message.
bool Execution::send(Cursor& cursor, const PlanStep& step, std::size_t at, std::size_t count) {
  std::size_t bytes = count * element_;
  Outlet& outlet = *step.outlet;
  std::byte* out = address(step.out, at * element_);
  targets_.clear();
  if (has_landings(cursor, step)) {
    targets_.push_back({out, step.store});
    for (std::size_t i = 0; i < step.inlets.size(); ++i)
      targets_.push_back({static_cast<std::byte*>(cursor.landings[i]), for_others_.store});
    combine(cursor, step, count);
    outlet.send_placed(bytes, header_);
    return true;
  }
  std::byte* landing = address(step.landing, at * element_);
  const std::byte* offered = bytes >= kLeastOffer ? address(step.offered, at * element_) : nullptr;
  if (offered != nullptr && outlet.can_reach(offered, bytes)) {
    bool is_result = offered == out;
    // The receivers still have the lines of what was offered here before.
    if (is_result)
      store(cursor, step, count, {out, step.store == Store::streaming ? step.store : for_others_.store});
    outlet.offer(offered, bytes, landing, header_);
    if (!is_result && out != nullptr) store(cursor, step, count, {out, step.store});
    return true;
  }
  if (offered != nullptr && step.inlets.empty() && plan_->single_copy) {
    // No slot bounds what is fetched.
    std::size_t slice = plan_->shape.slice;
    std::size_t most = std::max<std::size_t>(1, kLongestFetch / (slice * element_)) * slice;
    std::size_t length = std::min(most, step.count - at);
    outlet.offer(offered, length * element_, nullptr, header_);
    if (out != nullptr) store(cursor, step, length, {out, step.store});
    go_ahead(cursor, at + length);
    return true;
  }
  if (!outlet.has_slot()) return false;
  targets_.push_back({outlet.slot(), for_others_.store});
  // The receivers need not wait for what they do not get.
  bool in_turn = step.is_copy && out != nullptr;
  if (!in_turn && out != nullptr) targets_.push_back({out, step.store});
  combine(cursor, step, count);
  outlet.commit(bytes, landing, header_);
  if (in_turn) store(cursor, step, count, {out, step.store});
  return true;
}

void Execution::store(Cursor& cursor, const PlanStep& step, std::size_t count, Target target) {
  targets_.assign(1, target);
  combine(cursor, step, count);
}

// The operands' combination, to all targets.
void Execution::combine(Cursor& cursor, const PlanStep& step, std::size_t count) {
  if (step.is_copy) return copy_to_targets(cursor.operands[0], count * element_);
  bool in_one_pass =
      targets_.size() <= 2 && std::none_of(targets_.begin(), targets_.end(),
                                           [](const Target& to) { return to.store == Store::shared; });
  if (!in_one_pass) return reduce_in_pieces(cursor, step, count);
  reduce(step, cursor.operands.data(), count, targets_[0], targets_.size() == 2 ? targets_[1] : Target{});
}

void Execution::copy_to_targets(const void* from, std::size_t bytes) {
  for (Target& to : targets_) {
    if (to.data == from) continue;  // in place
    switch (to.store) {
      case Store::cached:
        std::memcpy(to.data, from, bytes);
        break;
      case Store::streaming:
        copy_streaming(to.data, from, bytes);
        break;
      case Store::shared:
        copy_over_shared(to.data, from, bytes);
        break;
    }
  }
}

void Execution::reduce(const PlanStep& step, const void* const* operands, std::size_t count, Target first,
                       Target second) {
  plan_->reduce({.operands = operands,
                 .operand_count = step.operand_count,
                 .outputs = {first.data, second.data},
                 .output_count = second.data != nullptr ? 2 : 1,
                 .count = count,
                 .scaled_operand = step.scale ? step.own_position : -1,
                 .scalar = scalar_,
                 .divisor = step.finish ? plan_->shape.ranks : 1,
                 .streaming = {first.store == Store::streaming, second.store == Store::streaming}});
}

// The result is made in this core's first cache, a piece at a time, and copied from there: the kernels store
// to two places at most, and not as one should to lines that others hold.
void Execution::reduce_in_pieces(Cursor& cursor, const PlanStep& step, std::size_t count) {
  alignas(64) std::array<std::byte, kPiece> buffer;
  auto cached = std::find_if(targets_.begin(), targets_.end(),
                             [](const Target& to) { return to.store == Store::cached; });
  for (std::size_t left = count * element_; left != 0;) {
    std::size_t piece = std::min(kPiece, left);
    std::byte* result = cached != targets_.end() ? cached->data : buffer.data();
    reduce(step, cursor.operands.data(), piece / element_, {result});
    copy_to_targets(result, piece);
    for (int k = 0; k < step.operand_count; ++k) {
      const void*& operand = cursor.operands[static_cast<std::size_t>(k)];
      operand = static_cast<const std::byte*>(operand) + piece;
    }
    for (Target& to : targets_) to.data += piece;
    left -= piece;
  }
}

}  // namespace tutti
