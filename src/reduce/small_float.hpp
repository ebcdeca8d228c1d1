// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tutti {

/// What becomes of values beyond the largest finite one.
enum class Overflow { infinity, largest };

/// A binary floating-point format of at most 16 bits: sign, exponent, mantissa. `kIeee`: the top exponent
/// holds infinity and NaNs, as in IEEE 754; otherwise it holds numbers too, and all ones is the only NaN.
template <int kExponentBits, int kMantissaBits, bool kIeee, Overflow kOverflow>
struct SmallFloat {
  using Bits = std::conditional_t<kExponentBits + kMantissaBits == 7, std::uint8_t, std::uint16_t>;
  static constexpr int kWidth = kExponentBits + kMantissaBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr std::uint32_t kMagnitude = (1U << kWidth) - 1;
  static constexpr std::uint32_t kInfinity = ((1U << kExponentBits) - 1) << kMantissaBits;
  static constexpr std::uint32_t kLargest = kIeee ? kInfinity - 1 : kMagnitude - 1;
  static constexpr std::uint32_t kNan = kIeee ? kInfinity | (1U << (kMantissaBits - 1)) : kMagnitude;

  static constexpr float decode(Bits bits) {
    std::uint32_t magnitude = bits & kMagnitude;
    float sign = (bits >> kWidth & 1U) != 0 ? -1.0F : 1.0F;
    if (kIeee ? magnitude > kInfinity : magnitude == kNan) return std::numeric_limits<float>::quiet_NaN();
    if (kIeee && magnitude == kInfinity) return sign * std::numeric_limits<float>::infinity();
    auto exponent = static_cast<int>(magnitude >> kMantissaBits);
    auto significand = static_cast<int>(magnitude & ((1U << kMantissaBits) - 1));
    // A normal number has the hidden one; a subnormal one the exponent of the smallest normal.
    if (exponent == 0)
      exponent = 1;
    else
      significand += 1 << kMantissaBits;
    int power = exponent - kBias - kMantissaBits;
    return sign * static_cast<float>(significand) *
           std::bit_cast<float>(static_cast<std::uint32_t>(power + 127) << 23);
  }

  /// Nearest value, ties to even.
  static constexpr Bits encode(float value) {
    std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    std::uint32_t sign = bits >> 31 << kWidth;
    std::uint32_t magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return static_cast<Bits>(sign | kNan);
    int exponent = static_cast<int>(magnitude >> 23) - 127;
    constexpr int kSmallestNormal = 1 - kBias;
    int dropped = 23 - kMantissaBits;
    if (exponent < kSmallestNormal) dropped += kSmallestNormal - exponent;
    if (dropped > 25) return static_cast<Bits>(sign);  // less than half of the smallest subnormal
    std::uint64_t significand = (magnitude & 0x7FFFFF) | (exponent > -127 ? 0x800000U : 0U);
    std::uint64_t half = std::uint64_t{1} << (dropped - 1);
    std::uint64_t rounded = (significand + half - 1 + ((significand >> dropped) & 1)) >> dropped;
    // The hidden one, if present, is added to the exponent field; a carry out of the mantissa goes the same
    // way.
    int field = exponent < kSmallestNormal ? 0 : exponent - kSmallestNormal;
    std::uint64_t result = (static_cast<std::uint64_t>(field) << kMantissaBits) + rounded;
    if (result > kLargest) result = kOverflow == Overflow::largest ? kLargest : kInfinity;
    return static_cast<Bits>(sign | static_cast<std::uint32_t>(result));
  }
};

/// IEEE 754 binary16.
using Float16 = SmallFloat<5, 10, true, Overflow::infinity>;
/// The formats of the OCP specification "8-bit Floating Point (OFP8)" 1.0, with CUDA's __NV_SATFINITE
/// conversion.
using Float8E4M3 = SmallFloat<4, 3, false, Overflow::largest>;
using Float8E5M2 = SmallFloat<5, 2, true, Overflow::largest>;

}  // namespace tutti
