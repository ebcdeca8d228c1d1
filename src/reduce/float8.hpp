// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <bit>
#include <cstdint>
#include <limits>

namespace tutti {

/// The two 8-bit formats of the OCP specification "8-bit Floating Point (OFP8)" 1.0: E4M3 (no infinity, one
/// NaN pattern, largest value 448) and E5M2 (as IEEE, largest value 57344).
template <int kMantissaBits>
struct Float8 {
  static_assert(kMantissaBits == 2 || kMantissaBits == 3);
  static constexpr int kExponentBits = 7 - kMantissaBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr std::uint8_t kLargest = kMantissaBits == 3 ? 0x7E : 0x7B;
  static constexpr std::uint8_t kNan = 0x7F;

  static constexpr float decode(std::uint8_t bits) {
    int exponent = (bits & 0x7F) >> kMantissaBits;
    int mantissa = bits & ((1 << kMantissaBits) - 1);
    float sign = (bits & 0x80) != 0 ? -1.0F : 1.0F;
    bool all_ones = exponent == (1 << kExponentBits) - 1;
    if (kMantissaBits == 3 ? (bits & 0x7F) == 0x7F : all_ones && mantissa != 0)
      return std::numeric_limits<float>::quiet_NaN();
    if (kMantissaBits == 2 && all_ones) return sign * std::numeric_limits<float>::infinity();
    // A normal number has the hidden one; a subnormal one the exponent of the smallest normal.
    int significand = exponent == 0 ? mantissa : mantissa + (1 << kMantissaBits);
    int power = (exponent == 0 ? 1 : exponent) - kBias - kMantissaBits;
    float scale = std::bit_cast<float>(static_cast<std::uint32_t>(power + 127) << 23);
    return sign * static_cast<float>(significand) * scale;
  }

  /// Nearest value, ties to even; what is too large, infinity included, becomes the largest finite value
  /// (CUDA's
  /// __NV_SATFINITE).
  static constexpr std::uint8_t encode(float value) {
    std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80);
    std::uint32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return sign | kNan;
    int exponent = static_cast<int>(magnitude >> 23) - 127;
    constexpr int kSmallestNormal = 1 - kBias;
    int dropped = 23 - kMantissaBits;
    if (exponent < kSmallestNormal) dropped += kSmallestNormal - exponent;
    if (dropped > 25) return sign;  // less than half of the smallest subnormal
    std::uint64_t significand = (magnitude & 0x7FFFFF) | (exponent > -127 ? 0x800000U : 0U);
    std::uint64_t half = std::uint64_t{1} << (dropped - 1);
    std::uint64_t rounded = (significand + half - 1 + ((significand >> dropped) & 1)) >> dropped;
    // The hidden one, if present, is added to the exponent field; a carry out of the mantissa goes the same
    // way.
    int field = exponent < kSmallestNormal ? 0 : exponent - kSmallestNormal;
    std::uint64_t result = (static_cast<std::uint64_t>(field) << kMantissaBits) + rounded;
    return static_cast<std::uint8_t>(sign | (result > kLargest ? kLargest : result));
  }
};

using Float8E4M3 = Float8<3>;
using Float8E5M2 = Float8<2>;

}  // namespace tutti
