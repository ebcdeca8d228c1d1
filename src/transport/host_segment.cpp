// SPDX-License-Identifier: BSD-3-Clause
#include "transport/host_segment.hpp"

#include "base/error.hpp"

namespace tutti {
namespace {

constexpr std::size_t kPage = 4096;
std::size_t to_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

struct Extents {
  std::size_t lane_bytes, lanes_at, slots_at, multicasts_at, total;
};

Extents extents(const SegmentLayout& layout) {
  auto n = static_cast<std::size_t>(layout.ranks);
  auto lanes = static_cast<std::size_t>(layout.lanes);
  auto depth = static_cast<std::size_t>(layout.depth);
  Extents e{};
  e.lane_bytes = sizeof(Tail) + depth * sizeof(Descriptor);
  e.lanes_at = to_pages(n * sizeof(RankBoard));
  e.slots_at = e.lanes_at + to_pages(n * n * lanes * e.lane_bytes);
  e.multicasts_at = e.slots_at + n * n * lanes * depth * layout.slice;
  e.total = e.multicasts_at + n * lanes * depth * layout.slice;
  return e;
}

}  // namespace

SegmentLayout segment_layout(int ranks, int lanes, bool one_process, std::size_t slice) {
  SegmentLayout layout{.ranks = ranks, .lanes = lanes, .one_process = one_process};
  layout.depth = ranks <= 8 ? 8 : ranks <= 16 ? 4 : 2;
  if (slice != 0)
    layout.slice = (slice + 63) / 64 * 64;
  else if (one_process)
    layout.slice = ranks <= 16 ? 256 << 10 : 64 << 10;
  else
    layout.slice = ranks <= 4 ? 64 << 10 : ranks <= 8 ? 32 << 10 : ranks <= 32 ? 16 << 10 : 4 << 10;
  return layout;
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
  SharedMemory memory = SharedMemory::create("tutti-segment", extents(layout).total, false);
  return std::shared_ptr<HostSegment>(new HostSegment(std::move(memory), layout));
}

std::shared_ptr<HostSegment> HostSegment::attach(const FileDescriptor& file, const SegmentLayout& layout) {
  SharedMemory memory = SharedMemory::attach(file, false);
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

RankBoard& HostSegment::board(int rank) const { return reinterpret_cast<RankBoard*>(data())[rank]; }

Tail& HostSegment::tail(int source, int destination, int lane) const {
  return *reinterpret_cast<Tail*>(data() + lanes_at_ + pair_lane(source, destination, lane) * lane_bytes_);
}

Descriptor& HostSegment::descriptor(int source, int destination, int lane, std::uint64_t sequence) const {
  auto* ring = reinterpret_cast<Descriptor*>(
      data() + lanes_at_ + pair_lane(source, destination, lane) * lane_bytes_ + sizeof(Tail));
  return ring[sequence & static_cast<std::uint64_t>(layout_.depth - 1)];
}

std::size_t HostSegment::slot_offset(int source, int destination, int lane, std::uint64_t sequence) const {
  auto depth = static_cast<std::uint64_t>(layout_.depth);
  return slots_at_ + (pair_lane(source, destination, lane) * depth + sequence % depth) * layout_.slice;
}

std::size_t HostSegment::multicast_offset(int source, int lane, std::uint64_t sequence) const {
  auto depth = static_cast<std::uint64_t>(layout_.depth);
  auto index = static_cast<std::size_t>(source) * static_cast<std::size_t>(layout_.lanes) +
               static_cast<std::size_t>(lane);
  return multicasts_at_ + (index * depth + sequence % depth) * layout_.slice;
}

}  // namespace tutti
