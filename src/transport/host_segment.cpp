// SPDX-License-Identifier: BSD-3-Clause
#include "transport/host_segment.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace tutti {
namespace {

constexpr std::size_t kPage = 4096;
// Up to here a segment is small enough to have huge pages where the system gives them: of a larger, sparse
// one they would make far more present than is used.
constexpr int kFewRanks = 8;
std::size_t to_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

struct Extents {
  std::size_t lane_bytes, lanes_at, slots_at, multicasts_at, total;
};

Extents extents(const SegmentLayout& layout) {
  auto n = static_cast<std::size_t>(layout.ranks);
  auto lanes = static_cast<std::size_t>(layout.lanes);
  auto depth = static_cast<std::size_t>(layout.depth);
  Extents e{};
  std::size_t units = static_cast<std::size_t>(layout.units) + MessageHead::units_for(layout.inlined);
  std::size_t ring_bytes = (units * MessageHead::kUnit + alignof(Tail) - 1) / alignof(Tail) * alignof(Tail);
  e.lane_bytes = sizeof(Tail) + ring_bytes;
  e.lanes_at = to_pages(sizeof(CommonBoard) + n * sizeof(RankBoard));
  e.slots_at = e.lanes_at + to_pages(n * n * lanes * e.lane_bytes);
  e.multicasts_at = e.slots_at + n * n * lanes * depth * layout.slice;
  e.total = e.multicasts_at + n * lanes * depth * layout.slice;
  return e;
}

}  // namespace

SegmentLayout segment_layout(int ranks, int lanes, bool one_process, std::size_t slice) {
  SegmentLayout layout{.ranks = ranks, .lanes = lanes};
  layout.units = ranks <= 16 ? 256 : ranks <= 32 ? 64 : 32;
  layout.inlined = ranks <= 16 ? kInlineBytes : 96;
  layout.depth = ranks <= 8 ? 8 : ranks <= 16 ? 4 : 2;
  if (slice != 0)
    layout.slice = (slice + 63) / 64 * 64;
  else if (one_process)
    layout.slice = ranks <= 16 ? 256 << 10 : 64 << 10;
  else
    layout.slice = ranks <= 4 ? 64 << 10 : ranks <= 8 ? 32 << 10 : ranks <= 32 ? 16 << 10 : 4 << 10;
  return layout;
}

std::size_t slice_between_hosts(int most_ranks, int lanes) {
  // The longer the message, the fewer calls of the kernel. Many ranks on a host need a slot for each pair.
  std::size_t least = most_ranks <= 8 ? 512 << 10 : 256 << 10;
  return std::max(segment_layout(most_ranks, lanes, false, 0).slice, least);
}

HostSegment::HostSegment(SharedMemory memory, const SegmentLayout& layout)
    : memory_(std::move(memory)), layout_(layout) {
  Extents e = extents(layout);
  lane_bytes_ = e.lane_bytes;
  lanes_at_ = e.lanes_at;
  slots_at_ = e.slots_at;
  multicasts_at_ = e.multicasts_at;
}

std::shared_ptr<HostSegment> HostSegment::create(const SegmentLayout& layout) {
  SharedMemory memory =
      SharedMemory::create("tutti-segment", extents(layout).total, layout.ranks <= kFewRanks);
  return std::shared_ptr<HostSegment>(new HostSegment(std::move(memory), layout));
}

std::shared_ptr<HostSegment> HostSegment::attach(const FileDescriptor& file, const SegmentLayout& layout) {
  SharedMemory memory = SharedMemory::attach(file, layout.ranks <= kFewRanks);
  if (memory.size() < extents(layout).total)
    fail(ncclInvalidUsage,
         "the communicator's shared memory has {} bytes, this rank expects {}: TUTTI_SLICE must be the same "
         "on all "
         "ranks",
         memory.size(), extents(layout).total);
  return std::shared_ptr<HostSegment>(new HostSegment(std::move(memory), layout));
}

std::size_t HostSegment::pair_lane(int source, int destination, int lane) const {
  auto n = static_cast<std::size_t>(layout_.ranks);
  return (static_cast<std::size_t>(source) * n + static_cast<std::size_t>(destination)) *
             static_cast<std::size_t>(layout_.lanes) +
         static_cast<std::size_t>(lane);
}

Tail& HostSegment::tail(int source, int destination, int lane) const {
  return *reinterpret_cast<Tail*>(data() + lanes_at_ + pair_lane(source, destination, lane) * lane_bytes_);
}

std::byte* HostSegment::ring(int source, int destination, int lane) const {
  return data() + lanes_at_ + pair_lane(source, destination, lane) * lane_bytes_ + sizeof(Tail);
}

std::size_t HostSegment::slots_offset(int source, int destination, int lane) const {
  return slots_at_ +
         pair_lane(source, destination, lane) * static_cast<std::size_t>(layout_.depth) * layout_.slice;
}

std::size_t HostSegment::multicast_slots_offset(int source, int lane) const {
  auto index = static_cast<std::size_t>(source) * static_cast<std::size_t>(layout_.lanes) +
               static_cast<std::size_t>(lane);
  return multicasts_at_ + index * static_cast<std::size_t>(layout_.depth) * layout_.slice;
}

}  // namespace tutti
