// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace trainer {

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four
/// random words that depend on key and counter alone, so that any rank can make any element's numbers without
/// the others'.
inline std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t stream, std::uint64_t counter) {
  std::array<std::uint32_t, 4> x = {
      static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
      static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    std::uint64_t a = std::uint64_t{0xD2511F53} * x[0], b = std::uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<std::uint32_t>(b >> 32) ^ x[1] ^ k0, static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ x[3] ^ k1, static_cast<std::uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return x;
}

/// Above 0, at most 1.
inline double uniform(std::uint32_t word) { return (static_cast<double>(word) + 1.0) / 4294967296.0; }

/// The standard normal number of element `counter` (Box-Muller).
inline float normal(std::uint64_t key, std::uint64_t stream, std::uint64_t counter) {
  std::array<std::uint32_t, 4> words = philox(key, stream, counter);
  return static_cast<float>(std::sqrt(-2.0 * std::log(uniform(words[0]))) *
                            std::cos(2.0 * std::numbers::pi * uniform(words[1])));
}

}  // namespace trainer
