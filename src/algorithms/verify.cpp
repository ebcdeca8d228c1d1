// SPDX-License-Identifier: BSD-3-Clause
//
// A symbolic execution with the executor's rules (rounds, bounded lanes) and vector clocks. Because a rank's
// tracks only ever wait for messages and room, all fair orders of execution reach the same end; one is enough
// to decide termination, and the clocks decide for all the others at once whether they could differ. The race
// check is that of FastTrack (Flanagan and Freund, 2009): epochs for writers, one entry per reading track.
#include "algorithms/verify.hpp"

#include <array>
#include <bitset>
#include <memory>

#include "base/error.hpp"

namespace tutti {
namespace {

using Contributions = std::bitset<kMostVerifiedRanks>;
using Clock = std::vector<std::uint32_t>;

// What an element of memory stands for: element `index` of the global operation, with the parts of these
// ranks.
struct Value {
  static constexpr std::size_t kUndefined = ~std::size_t{0};
  std::size_t index = kUndefined;
  Contributions parts;
  bool finished = false;
};

struct Epoch {
  std::size_t track = 0;  // of all tracks of all ranks
  std::uint32_t time = 0;
};

struct Cell {
  Value value;
  Epoch writer;
  std::vector<Epoch> readers;  // since the last write
};

// A message: values as they were sent, or, read in place, the cells that they are in.
struct Message {
  std::vector<Value> values;
  std::vector<Cell*> cells;
  std::vector<Cell*> landing;  // where the answer belongs, if that was said
  bool placed = false;         // `cells` are in the receiver's output
  std::size_t count = 0;
  std::shared_ptr<const Clock> clock;
  std::shared_ptr<int> unread;  // receivers of a message to several ranks who have not consumed it
};

class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Arguments>
[[noreturn]] void fault(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw Fault(fmt::format(format, std::forward<Arguments>(arguments)...));
}

struct TrackState {
  int rank = 0;
  const Track* steps = nullptr;
  std::size_t id = 0;
  std::size_t step = 0;
  std::size_t round = 0;
  std::size_t rounds = 0;
  bool done() const { return round >= rounds; }
};

class Machine {
 public:
  Machine(const std::vector<Schedule>& schedules, const Shape& shape, const VerifyOptions& options)
      : schedules_(schedules), shape_(shape), options_(options), n_(static_cast<std::size_t>(shape.ranks)) {
    for (int r = 0; r < shape.ranks; ++r) add_rank(r);
    lanes_.resize(n_ * n_ * kLaneCount);
    multicasts_.resize(n_ * kLaneCount);
    clocks_.assign(tracks_.size(), Clock(tracks_.size(), 0));
    for (std::size_t t = 0; t < tracks_.size(); ++t) clocks_[t][t] = 1;
  }

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (TrackState& track : tracks_)
        while (!track.done() && advance(track)) moved = true;
    }
    check_termination();
    for (int r = 0; r < shape_.ranks; ++r) check_output(r);
  }

 private:
  struct Memory {
    std::vector<Cell> shared;  // the input and output, overlapping in the in-place form
    std::vector<Cell> scratch;
    std::size_t input_at = 0, output_at = 0;
    std::size_t input_size = 0, output_size = 0;
  };

  Shape shape_of(int rank) const {
    Shape shape = shape_;
    shape.rank = rank;
    return shape;
  }

  void add_rank(int rank) {
    Shape shape = shape_of(rank);
    Memory memory;
    memory.input_size = input_count(shape);
    memory.output_size = output_count(shape);
    if (shape.in_place && memory.input_size != 0 && memory.output_size != 0) {
      (memory.input_size < memory.output_size ? memory.input_at : memory.output_at) = in_place_offset(shape);
      memory.shared.resize(std::max(memory.input_size, memory.output_size));
    } else {
      memory.output_at = memory.input_size;
      memory.shared.resize(memory.input_size + memory.output_size);
    }
    const Schedule& schedule = schedules_[static_cast<std::size_t>(rank)];
    memory.scratch.resize(schedule.scratch);
    for (std::size_t i = 0; i < memory.input_size; ++i) {
      Value& value = memory.shared[memory.input_at + i].value;
      value.index = input_index(shape, i);
      value.parts.set(static_cast<std::size_t>(rank));
    }
    memories_.push_back(std::move(memory));
    for (const Track& steps : schedule.tracks) {
      TrackState track{.rank = rank, .steps = &steps, .id = tracks_.size()};
      for (const Step& step : steps)
        track.rounds = std::max(track.rounds, (step.count + shape_.slice - 1) / shape_.slice);
      tracks_.push_back(track);
    }
  }

  // Names for elements, such that equal names mean the same element of the result.
  std::size_t input_index(const Shape& shape, std::size_t i) const {
    auto rank = static_cast<std::size_t>(shape.rank);
    switch (shape.collective) {
      case Collective::all_gather:
      case Collective::gather:
        return rank * shape.count + i;
      case Collective::all_to_all:
        return rank * n_ * shape.count + i;
      default:
        return i;
    }
  }

  std::size_t output_index(const Shape& shape, std::size_t i) const {
    auto rank = static_cast<std::size_t>(shape.rank);
    switch (shape.collective) {
      case Collective::reduce_scatter:
      case Collective::scatter:
        return rank * shape.count + i;
      case Collective::all_to_all:
        return (i / shape.count) * n_ * shape.count + rank * shape.count + i % shape.count;
      default:
        return i;
    }
  }

  Contributions expected_parts(const Shape& shape, std::size_t i) const {
    Contributions parts;
    if (is_reducing(shape.collective)) {
      for (std::size_t r = 0; r < n_; ++r) parts.set(r);
    } else if (has_root(shape.collective) && shape.collective != Collective::gather) {
      parts.set(static_cast<std::size_t>(shape.root));
    } else {
      parts.set(i / shape.count);
    }
    return parts;
  }

  std::vector<Message>& lane(int from, int to, int number) {
    return lanes_[(static_cast<std::size_t>(from) * n_ + static_cast<std::size_t>(to)) * kLaneCount +
                  static_cast<std::size_t>(number)];
  }

  std::vector<std::shared_ptr<int>>& multicasts(int from, int number) {
    auto& list = multicasts_[static_cast<std::size_t>(from) * kLaneCount + static_cast<std::size_t>(number)];
    std::erase_if(list, [](const std::shared_ptr<int>& unread) { return *unread == 0; });
    return list;
  }

  std::string place(const TrackState& track) const {
    return fmt::format("rank {} track {} step {} round {}", track.rank,
                       track.steps - schedules_[static_cast<std::size_t>(track.rank)].tracks.data(),
                       track.step, track.round);
  }

  Cell* cells(const TrackState& track, const Range& range, std::size_t at, std::size_t count) {
    Memory& memory = memories_[static_cast<std::size_t>(track.rank)];
    std::size_t offset = range.offset + (range.buffer == Buffer::scratch ? 0 : at);
    std::size_t size = range.buffer == Buffer::input    ? memory.input_size
                       : range.buffer == Buffer::output ? memory.output_size
                                                        : memory.scratch.size();
    if (offset + count > size)
      fault("{}: elements {} to {} of a buffer of {}", place(track), offset, offset + count, size);
    if (range.buffer == Buffer::input) return &memory.shared[memory.input_at + offset];
    if (range.buffer == Buffer::output) return &memory.shared[memory.output_at + offset];
    return &memory.scratch[offset];
  }

  void read(const TrackState& track, Cell& cell) {
    const Clock& now = clocks_[track.id];
    if (cell.writer.time > now[cell.writer.track])
      fault("{}: race: reads what track {} of all may be writing", place(track), cell.writer.track);
    for (Epoch& reader : cell.readers)
      if (reader.track == track.id) {
        reader.time = now[track.id];
        return;
      }
    cell.readers.push_back({track.id, now[track.id]});
  }

  void write(const TrackState& track, Cell& cell) {
    const Clock& now = clocks_[track.id];
    if (cell.writer.time > now[cell.writer.track])
      fault("{}: race: writes what track {} of all may be writing", place(track), cell.writer.track);
    for (const Epoch& reader : cell.readers)
      if (reader.time > now[reader.track])
        fault("{}: race: overwrites what track {} of all may still be reading", place(track), reader.track);
    cell.readers.clear();
    cell.writer = {track.id, now[track.id]};
  }

  void combine(const TrackState& track, Value& sum, const Value& operand, bool first) {
    if (operand.index == Value::kUndefined) fault("{}: reads an undefined element", place(track));
    if (first) {
      sum = operand;
      return;
    }
    if (!is_reducing(shape_.collective)) fault("{}: combines in a collective that only moves", place(track));
    if (sum.index != operand.index)
      fault("{}: combines element {} with element {}", place(track), sum.index, operand.index);
    if ((sum.parts & operand.parts).any()) fault("{}: a contribution would be counted twice", place(track));
    if (sum.finished || operand.finished) fault("{}: combines a finished element", place(track));
    sum.parts |= operand.parts;
  }

  bool ready(const TrackState& track, const Step& step, std::size_t count) {
    for (int peer : step.from) {
      const auto& messages = lane(peer, track.rank, step.from_lane);
      if (messages.empty()) return false;
      if (messages.front().count != count)
        fault("{}: expects {} elements from rank {} and gets {}", place(track), count, peer,
              messages.front().count);
    }
    auto room = static_cast<std::size_t>(options_.lane_slices);
    for (int peer : step.to)
      if (lane(track.rank, peer, step.to_lane).size() >= room) return false;
    return step.to.size() < 2 || multicasts(track.rank, step.to_lane).size() < room;
  }

  // One slice of one step; false if it must wait.
  bool advance(TrackState& track) {
    const Step& step = (*track.steps)[track.step];
    std::size_t at = track.round * shape_.slice;
    if (at < step.count) {
      std::size_t count = std::min(shape_.slice, step.count - at);
      if (!ready(track, step, count)) return false;
      execute(track, step, at, count);
    }
    if (++track.step == track.steps->size()) {
      track.step = 0;
      ++track.round;
    }
    return true;
  }

  void execute(const TrackState& track, const Step& step, std::size_t at, std::size_t count) {
    Clock& now = clocks_[track.id];
    ++now[track.id];
    if (step.finish && !is_reducing(shape_.collective))
      fault("{}: finishes what is not reduced", place(track));
    if (!step.in && step.from.empty()) fault("{}: has no operand", place(track));
    std::vector<Value> sums(count);
    std::vector<std::vector<Cell*>> landings;
    bool first = true;
    if (step.in) {
      Cell* source = cells(track, step.in, at, count);
      for (std::size_t i = 0; i < count; ++i) {
        read(track, source[i]);
        combine(track, sums[i], source[i].value, first);
      }
      first = false;
    }
    for (int peer : step.from) {
      Message message = consume(track, lane(peer, track.rank, step.from_lane), sums, first);
      if (message.placed) check_place(track, step, at, message);
      if (!message.landing.empty()) landings.push_back(std::move(message.landing));
      first = false;
    }
    for (Value& value : sums) {
      if (step.finish && value.finished) fault("{}: finishes an element twice", place(track));
      value.finished = value.finished || step.finish;
    }
    if (is_local_copy(step)) {
      give(track, step, at, sums);
      bool in_place = step.out && cells(track, step.in, at, count) == cells(track, step.out, at, count);
      if (!in_place) store(track, step, at, sums);
      return;
    }
    store(track, step, at, sums);
    if (pushes(track, step, landings.size()))
      push(track, step, sums, landings);
    else
      give(track, step, at, sums);
  }

  void store(const TrackState& track, const Step& step, std::size_t at, const std::vector<Value>& sums) {
    if (!step.out) return;
    if (step.out.buffer == Buffer::input) fault("{}: writes to the input", place(track));
    Cell* stored = cells(track, step.out, at, sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      write(track, stored[i]);
      stored[i].value = sums[i];
    }
  }

  bool pushes(const TrackState& track, const Step& step, std::size_t landings) const {
    return options_.push_stride != 0 && track.rank % options_.push_stride == 0 && step.from == step.to &&
           !step.to.empty() && step.out.buffer == Buffer::output && landings == step.to.size();
  }

  // A result that was stored in this rank's output must be received there, as it is.
  void check_place(const TrackState& track, const Step& step, std::size_t at, const Message& message) {
    bool plain = !step.in && step.from.size() == 1 && step.to.empty() && !step.finish;
    if (!plain || step.out.buffer != Buffer::output)
      fault("{}: works on a result that was stored in its output", place(track));
    if (cells(track, step.out, at, message.count) != message.cells.front())
      fault("{}: receives elsewhere what was stored in its output", place(track));
  }

  void push(const TrackState& track, const Step& step, const std::vector<Value>& sums,
            const std::vector<std::vector<Cell*>>& landings) {
    for (const auto& landing : landings)
      for (std::size_t i = 0; i < sums.size(); ++i) {
        write(track, *landing[i]);
        landing[i]->value = sums[i];
      }
    auto clock = std::make_shared<const Clock>(clocks_[track.id]);
    for (std::size_t i = 0; i < step.to.size(); ++i) {
      Message message{.cells = landings[i], .placed = true, .count = sums.size()};
      message.clock = clock;
      lane(track.rank, step.to[i], step.to_lane).push_back(message);
    }
    ++clocks_[track.id][track.id];
  }

  Message consume(const TrackState& track, std::vector<Message>& messages, std::vector<Value>& sums,
                  bool first) {
    Message message = std::move(messages.front());
    messages.erase(messages.begin());
    if (message.unread) --*message.unread;
    Clock& now = clocks_[track.id];
    for (std::size_t t = 0; t < now.size(); ++t) now[t] = std::max(now[t], (*message.clock)[t]);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (!message.cells.empty()) read(track, *message.cells[i]);
      combine(track, sums[i], message.cells.empty() ? message.values[i] : message.cells[i]->value, first);
    }
    return message;
  }

  void give(const TrackState& track, const Step& step, std::size_t at, const std::vector<Value>& sums) {
    if (step.to.empty()) return;
    Message message{.values = sums, .count = sums.size()};
    message.clock = std::make_shared<const Clock>(clocks_[track.id]);
    if (Range place = place_of_message(step); options_.read_in_place && place) {
      Cell* base = cells(track, place, at, sums.size());
      for (std::size_t i = 0; i < sums.size(); ++i) message.cells.push_back(base + i);
    }
    if (step.landing) {
      if (step.landing.buffer != Buffer::output) fault("{}: a landing that is no output", place(track));
      Cell* landing = cells(track, step.landing, at, sums.size());
      for (std::size_t i = 0; i < sums.size(); ++i) message.landing.push_back(landing + i);
    }
    if (step.to.size() > 1) {
      message.unread = std::make_shared<int>(static_cast<int>(step.to.size()));
      multicasts(track.rank, step.to_lane).push_back(message.unread);
    }
    for (int peer : step.to) {
      if (peer == track.rank || peer < 0 || peer >= shape_.ranks)
        fault("{}: sends to rank {}", place(track), peer);
      lane(track.rank, peer, step.to_lane).push_back(message);
    }
    ++clocks_[track.id][track.id];
  }

  void check_termination() {
    for (const TrackState& track : tracks_)
      if (!track.done()) fault("deadlock: {} waits for ever", place(track));
    for (const auto& messages : lanes_)
      if (!messages.empty()) fault("a message of {} elements is never received", messages.front().count);
  }

  void check_output(int rank) {
    Shape shape = shape_of(rank);
    Memory& memory = memories_[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < memory.output_size; ++i) {
      const Value& value = memory.shared[memory.output_at + i].value;
      if (value.index == Value::kUndefined) fault("rank {}: output element {} is never written", rank, i);
      if (value.index != output_index(shape, i))
        fault("rank {}: output element {} holds element {} instead of {}", rank, i, value.index,
              output_index(shape, i));
      if (Contributions missing = expected_parts(shape, i) & ~value.parts; missing.any())
        fault("rank {}: output element {} lacks the contribution of rank {}", rank, i, missing._Find_first());
      if (value.parts != expected_parts(shape, i))
        fault("rank {}: output element {} holds contributions that it should not", rank, i);
      if (value.finished != is_reducing(shape.collective))
        fault("rank {}: output element {} is {}finished", rank, i, value.finished ? "" : "not ");
    }
  }

  const std::vector<Schedule>& schedules_;
  Shape shape_;
  VerifyOptions options_;
  std::size_t n_;
  std::vector<Memory> memories_;
  std::vector<TrackState> tracks_;
  std::vector<Clock> clocks_;
  std::vector<std::vector<Message>> lanes_;
  std::vector<std::vector<std::shared_ptr<int>>> multicasts_;
};

}  // namespace

std::string verify(const std::vector<Schedule>& schedules, const Shape& shape, const VerifyOptions& options) {
  if (shape.ranks > kMostVerifiedRanks)
    return fmt::format("only up to {} ranks can be verified, {} were asked for", kMostVerifiedRanks,
                       shape.ranks);
  try {
    Machine(schedules, shape, options).run();
  } catch (const Fault& found) {
    return found.what();
  }
  return "";
}

std::string verify(Algorithm algorithm, const Shape& shape) {
  std::vector<Schedule> schedules;
  bool stable = true;
  bool landings = false;
  for (int r = 0; r < shape.ranks; ++r) {
    Shape of_rank = shape;
    of_rank.rank = r;
    schedules.push_back(build(algorithm, of_rank));
    stable = stable && schedules.back().stable_sends;
    for (const Track& track : schedules.back().tracks)
      for (const Step& step : track) landings = landings || step.landing;
  }
  for (bool in_place : {false, true})
    for (int stride : {0, 1, 2}) {
      if ((in_place && !stable) || (stride != 0 && !landings)) continue;
      std::string found = verify(schedules, shape, {.read_in_place = in_place, .push_stride = stride});
      if (!found.empty())
        return fmt::format("{}{}{}", in_place ? "read in place: " : "",
                           stride == 0   ? ""
                           : stride == 1 ? "pushed: "
                                         : "pushed by half of the ranks: ",
                           found);
    }
  return "";
}

}  // namespace tutti
