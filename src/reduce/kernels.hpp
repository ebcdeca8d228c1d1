// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "reduce/types.hpp"

namespace tutti {

/// One pass over memory: outputs[j][i] = finish(operand 0 [i] op operand 1 [i] op ...), combined in the order
/// of the operands. One operand makes it a copy. An output may be the same memory as an operand (not overlap
/// it otherwise). Any alignment is allowed.
struct ReduceCall {
  const void* const* operands = nullptr;
  int operand_count = 0;
  std::array<void*, 2> outputs{};
  int output_count = 0;
  std::size_t count = 0;            ///< elements
  int scaled_operand = -1;          ///< premul_sum: this operand is multiplied by `scalar` first
  std::uint64_t scalar = 0;         ///< in the element type
  int divisor = 1;                  ///< the result is divided by it (avg)
  std::array<bool, 2> streaming{};  ///< by output: stores bypass the cache, fenced before the call returns
};

using ReduceFunction = void (*)(const ReduceCall&);

/// The kernel for this machine's best instruction set; look it up once, call it often.
ReduceFunction reduce_function(DataType type, OperatorKind kind);

/// memcpy with stores that bypass the cache, fenced before it returns.
void copy_streaming(void* destination, const void* source, std::size_t bytes);

/// memcpy into lines that another core's cache is likely to hold: writes whole lines where the processor can
/// (x86: `rep movsb`), so that their old contents do not travel first. The data ends up in or near this
/// core's cache.
void copy_over_shared(void* destination, const void* source, std::size_t bytes);

/// "AVX3", "AVX2", ...: what reduce_function chose.
const char* kernel_target_name();

}  // namespace tutti
