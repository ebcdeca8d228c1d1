// SPDX-License-Identifier: BSD-3-Clause
//
// Test data whose result is known without communication: small numbers, so that every order of combination is
// exact in every element type, fp8 included. Shared by the benchmarks and the tests; written without the
// library's own conversions, so that it can find faults in them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "nccl.h"

namespace values {

std::size_t size_of(ncclDataType_t type);

/// Stores `value`, rounded to nearest-even (and, for fp8, cut to the largest finite number), as an element.
void encode(ncclDataType_t type, double value, void* element);
double decode(ncclDataType_t type, const void* element);

/// Data repeats with this period, a prime: a block that lands in another's place shows.
inline constexpr std::size_t kPeriod = 10007;

/// Whose factor a rank's premultiplied sum uses: 1 or 2.
double premul_factor(int rank);

/// An operator as the benchmarks name it.
enum class Op { sum, prod, max, min, avg, mulsum };

/// One period of rank `rank`'s input for reductions with `op` over `ranks` ranks.
std::vector<std::byte> reduction_input(ncclDataType_t type, Op op, int rank, int ranks);
/// One period of what the reduction gives.
std::vector<std::byte> reduction_result(ncclDataType_t type, Op op, int ranks);
/// One period of input for collectives that only move data.
std::vector<std::byte> plain_input(ncclDataType_t type, int rank);

/// Fills `count` elements with the period, as if `destination` began at element `offset` of the endless data.
void fill(void* destination, const std::vector<std::byte>& period, std::size_t element, std::size_t offset,
          std::size_t count);
/// How many of `count` elements differ from it.
std::size_t count_wrong(const void* data, const std::vector<std::byte>& period, std::size_t element,
                        std::size_t offset, std::size_t count);

}  // namespace values
