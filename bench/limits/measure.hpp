// SPDX-License-Identifier: BSD-3-Clause
//
// bench/limits: what this machine can do at best, whatever the library: the rates of its memory and the times
// of a hand-over between two cores. bench/compare holds collectives against them.
#pragma once
#include <cstddef>
#include <vector>

namespace limits {

/// Bytes read plus bytes written, per second and 1e9.
using Rate = double;

/// One core, buffers of `bytes` each, all of them touched before: `operands` inputs are added into `outputs`
/// outputs (1 and 1: a copy), with plain stores or with stores that bypass the cache.
Rate one_core(std::size_t bytes, int operands, int outputs, bool streaming);

/// All cores at once, as in an all-reduce without a byte too many: there are as many inputs and outputs as
/// cores, and each core adds its shard of all inputs and stores it into all outputs.
Rate all_cores_sharing(std::size_t bytes, bool streaming);

/// All cores at once, each copying a buffer of its own.
Rate all_cores_copying(std::size_t bytes, bool streaming);

/// Microseconds until a cache line that one core has written is seen by another: half of there and back.
double line_hand_over();

/// Microseconds from futex wake-up to running: half of there and back between two sleepers. Sleepers on one
/// core when `one_core`, else on two.
double futex_wake_up(bool one_core);

/// Processors that this process may use.
std::vector<int> processors();

}  // namespace limits
