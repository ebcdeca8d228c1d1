// SPDX-License-Identifier: BSD-3-Clause
#include "algorithms/verify.hpp"

#include "support/catch.hpp"

using namespace tutti;

namespace {

std::vector<Schedule> schedules_of(Algorithm algorithm, const Shape& shape) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < shape.ranks; ++r) {
    Shape of_rank = shape;
    of_rank.rank = r;
    schedules.push_back(build(algorithm, of_rank));
  }
  return schedules;
}

Shape all_reduce_of(int ranks, std::size_t count = 7) {
  return {.collective = Collective::all_reduce, .ranks = ranks, .count = count, .slice = 2};
}

}  // namespace

TEST_CASE("verify refuses a schedule that loses a contribution", "[mutation]") {
  Shape shape = all_reduce_of(4);
  auto schedules = schedules_of(Algorithm::direct, shape);
  // Rank 2 reduces its shard without its own part.
  schedules[2].tracks[1][0].in = {};
  CHECK(says(verify(schedules, shape), {"lacks the contribution of rank 2"}));
}

TEST_CASE("verify refuses a schedule that counts a contribution twice", "[mutation]") {
  Shape shape = all_reduce_of(4);
  auto schedules = schedules_of(Algorithm::ring, shape);
  // Rank 1 forwards what it adds to again one step later.
  schedules[1].tracks[0][2].in = schedules[1].tracks[0][1].in;
  CHECK(!verify(schedules, shape).empty());
  auto recursive = schedules_of(Algorithm::recursive_doubling, shape);
  // Both exchanges with the same partner.
  for (int r = 0; r < 4; ++r) {
    auto& track = recursive[static_cast<std::size_t>(r)].tracks[0];
    track[2].to = track[0].to;
    track[3].from = track[1].from;
  }
  CHECK(says(verify(recursive, shape), {"counted twice"}));
}

TEST_CASE("verify refuses a deadlock: more messages ahead than lanes hold", "[mutation]") {
  Shape shape{.collective = Collective::all_to_all, .ranks = 2, .count = 3, .slice = 1};
  auto schedules = schedules_of(Algorithm::pairwise, shape);
  CHECK(verify(schedules, shape) == "");
  for (Schedule& schedule : schedules) {
    // Both give everything, block by block, before they take anything.
    Track track{schedule.tracks[0][0]};
    for (std::size_t i = 0; i < 3; ++i) {
      Step give = schedule.tracks[0][1];
      give.in.offset += i;
      give.count = 1;
      track.push_back(give);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      Step take = schedule.tracks[0][2];
      take.out.offset += i;
      take.count = 1;
      track.push_back(take);
    }
    schedule.tracks = {track};
  }
  CHECK(says(verify(schedules, shape), {"deadlock"}));
  CHECK(verify(schedules, shape, {.lane_slices = 3}) == "");
  // With a single slice a lane, a ring of fused steps stands still: the reason for kLeastLaneSlices.
  Shape ring = all_reduce_of(3);
  CHECK(says(verify(schedules_of(Algorithm::ring, ring), ring, {.lane_slices = 1}), {"deadlock"}));
}

TEST_CASE("verify refuses a rank that waits for a message nobody sends", "[mutation]") {
  Shape shape = all_reduce_of(3);
  auto schedules = schedules_of(Algorithm::direct, shape);
  schedules[0].tracks[0].pop_back();
  CHECK(says(verify(schedules, shape), {"deadlock"}));
}

TEST_CASE("verify refuses a message that nobody takes", "[mutation]") {
  Shape shape = all_reduce_of(2);
  auto schedules = schedules_of(Algorithm::flat, shape);
  schedules[0].tracks.push_back(
      {Step{.in = {Buffer::input, 0}, .from = {}, .out = {}, .to = {1}, .count = 1, .to_lane = 3}});
  CHECK(says(verify(schedules, shape), {"never received"}));
}

TEST_CASE("verify refuses a race between tracks", "[mutation]") {
  // flat with its two steps on two tracks: in place, the result may overwrite what is yet to be sent.
  Shape shape = all_reduce_of(3);
  auto schedules = schedules_of(Algorithm::flat, shape);
  for (Schedule& schedule : schedules) schedule.tracks = {{schedule.tracks[0][0]}, {schedule.tracks[0][1]}};
  CHECK(verify(schedules, shape) == "");
  shape.in_place = true;
  CHECK(says(verify(schedules, shape), {"race"}));
}

TEST_CASE("verify refuses an in-place hazard", "[mutation]") {
  // The schedule for separate buffers, run in place: blocks are overwritten before they are sent.
  Shape shape{.collective = Collective::all_to_all, .ranks = 4, .count = 2, .slice = 1};
  auto schedules = schedules_of(Algorithm::pairwise, shape);
  CHECK(verify(schedules, shape) == "");
  shape.in_place = true;
  CHECK(!verify(schedules, shape).empty());
}

TEST_CASE("verify refuses sends from memory that is overwritten too early, if they are read in place",
          "[mutation]") {
  Shape shape = all_reduce_of(4);
  auto schedules = schedules_of(Algorithm::recursive_doubling, shape);
  CHECK(verify(schedules, shape) == "");
  CHECK(says(verify(schedules, shape, {.read_in_place = true}), {"race"}));
}

TEST_CASE("verify refuses steps outside of their buffers, writes to the input, and missing finishes",
          "[mutation]") {
  Shape shape = all_reduce_of(3);
  auto wide = schedules_of(Algorithm::flat, shape);
  wide[1].tracks[0][1].out.offset = 1;
  CHECK(says(verify(wide, shape), {"of a buffer of"}));
  auto writes = schedules_of(Algorithm::flat, shape);
  writes[1].tracks[0][1].out.buffer = Buffer::input;
  CHECK(says(verify(writes, shape), {"writes to the input"}));
  auto unfinished = schedules_of(Algorithm::flat, shape);
  unfinished[2].tracks[0][1].finish = false;
  CHECK(says(verify(unfinished, shape), {"not finished"}));
  auto twice = schedules_of(Algorithm::ring, shape);
  for (Step& step : twice[0].tracks[0])
    if (step.out) step.finish = true;
  CHECK(!verify(twice, shape).empty());
}

TEST_CASE("verify refuses landings that are wrong, that race, or that are no output", "[mutation]") {
  Shape shape = all_reduce_of(3, 12);
  VerifyOptions pushed{.push_stride = 1};
  const auto schedules = schedules_of(Algorithm::direct, shape);
  CHECK(verify(schedules, shape, pushed) == "");

  // Rank 1 says that the second shard belongs where the third does.
  auto elsewhere = schedules;
  Step& give = elsewhere[1].tracks[0][0];
  give.landing.offset = (give.landing.offset + 4) % 12;
  CHECK(verify(elsewhere, shape) == "");
  CHECK(!verify(elsewhere, shape, pushed).empty());

  // What arrives is not taken as it is, but finished once more.
  auto worked_on = schedules;
  worked_on[1].tracks[2][0].finish = true;
  CHECK(says(verify(worked_on, shape, pushed), {"works on a result that was stored in its output"}));

  // Taken to another place than it was stored at.
  auto moved = schedules;
  std::swap(moved[1].tracks[2][0].out, moved[1].tracks[2][1].out);
  CHECK(says(verify(moved, shape, pushed), {"receives elsewhere"}));

  // Rank 1 reads its output where a landing is, unordered with who stores there.
  auto raced = schedules;
  Step peek{.in = give.landing, .from = {}, .out = {Buffer::scratch, 0}, .to = {}, .count = 2};
  peek.in.offset = schedules[1].tracks[0][0].landing.offset;
  raced[1].scratch = 2;
  raced[1].tracks[0].insert(raced[1].tracks[0].begin(),
                            {.in = {Buffer::input, 0}, .from = {}, .out = peek.in, .to = {}, .count = 2});
  raced[1].tracks[0].push_back(peek);
  CHECK(says(verify(raced, shape, pushed), {"race"}));

  auto no_output = schedules;
  no_output[1].tracks[0][0].landing.buffer = Buffer::input;
  CHECK(says(verify(no_output, shape, pushed), {"a landing that is no output"}));
}

TEST_CASE("rounds must not mix elements of one buffer at different offsets", "[mutation]") {
  // One step copies the whole, the next a part from its middle: in round j the second reads what round j+k
  // writes.
  Shape shape{.collective = Collective::broadcast, .ranks = 1, .count = 4, .slice = 1};
  Schedule schedule;
  schedule.scratch = 4;
  Step whole{.in = {Buffer::input, 0}, .from = {}, .out = {Buffer::output, 0}, .to = {}, .count = 4};
  Step middle{.in = {Buffer::output, 2}, .from = {}, .out = {Buffer::output, 0}, .to = {}, .count = 2};
  schedule.tracks = {{whole, middle}};
  CHECK(!verify({schedule}, shape).empty());
}

TEST_CASE("parts of a buffer cover it without overlap", "[chunks]") {
  for (std::size_t count : {0UL, 1UL, 5UL, 63UL, 64UL, 1000UL, 1025UL, 1048579UL})
    for (int parts : {1, 2, 3, 7, 64}) {
      std::size_t at = 0;
      for (int i = 0; i < parts; ++i) {
        Chunk chunk = chunk_of(count, parts, i);
        CHECK(chunk.offset == at);
        at += chunk.count;
      }
      CHECK(at == count);
    }
}
