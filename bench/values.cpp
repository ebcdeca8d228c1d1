// SPDX-License-Identifier: BSD-3-Clause
#include "values.hpp"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>

namespace values {
namespace {

struct FloatFormat {
  int exponent_bits, mantissa_bits;
  bool has_infinity;
};

// NOLINTNEXTLINE(bugprone-branch-clone)
FloatFormat format_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
      return {5, 10, true};
    case ncclBfloat16:
      return {8, 7, true};
    case ncclFloat8e4m3:
      return {4, 3, false};
    default:
      return {5, 2, true};
  }
}

bool is_small_float(ncclDataType_t type) {
  return type == ncclFloat16 || type == ncclBfloat16 || type == ncclFloat8e4m3 || type == ncclFloat8e5m2;
}

double decode_bits(const FloatFormat& f, std::uint32_t bits) {
  int bias = (1 << (f.exponent_bits - 1)) - 1;
  auto mantissa = static_cast<int>(bits & ((1U << f.mantissa_bits) - 1));
  auto exponent = static_cast<int>(bits >> f.mantissa_bits & ((1U << f.exponent_bits) - 1));
  double sign = (bits >> (f.mantissa_bits + f.exponent_bits) & 1U) != 0 ? -1.0 : 1.0;
  int top = (1 << f.exponent_bits) - 1;
  if (f.has_infinity && exponent == top)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (!f.has_infinity && exponent == top && mantissa == (1 << f.mantissa_bits) - 1)
    return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - bias - f.mantissa_bits);
}

std::uint32_t encode_bits(const FloatFormat& f, double value, bool saturate) {
  int bias = (1 << (f.exponent_bits - 1)) - 1;
  std::uint32_t sign = std::signbit(value) ? 1U << (f.exponent_bits + f.mantissa_bits) : 0;
  std::uint32_t top = ((1U << f.exponent_bits) - 1) << f.mantissa_bits;
  std::uint32_t largest = f.has_infinity ? top - 1 : (top | ((1U << f.mantissa_bits) - 2));
  if (std::isnan(value)) return sign | top | ((1U << f.mantissa_bits) - 1);
  double magnitude = std::fabs(value);
  int exponent =
      magnitude == 0 ? 1 - bias : std::max(std::isinf(magnitude) ? 0 : std::ilogb(magnitude), 1 - bias);
  double units =
      std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));  // to nearest, ties to even
  if (std::isinf(magnitude) || std::ldexp(units, exponent - f.mantissa_bits) > decode_bits(f, largest))
    return sign | (saturate || !f.has_infinity ? largest : top);
  auto significand = static_cast<std::uint32_t>(units);
  if (significand < 1U << f.mantissa_bits) return sign | significand;  // subnormal
  return sign | ((static_cast<std::uint32_t>(exponent + bias - 1) << f.mantissa_bits) + significand);
}

template <class T>
void store(double value, void* element) {
  auto typed = static_cast<T>(value);
  std::memcpy(element, &typed, sizeof typed);
}
template <class T>
double load(const void* element) {
  T typed;
  std::memcpy(&typed, element, sizeof typed);
  return static_cast<double>(typed);
}

std::uint64_t hash(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9E3779B97F4A7C15U ^ b * 0xC2B2AE3D27D4EB4FU;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9U;
  return x ^ x >> 32;
}

bool is_signed(ncclDataType_t type) { return type != ncclUint8 && type != ncclUint32 && type != ncclUint64; }

// Element j of a rank's input. Sums and products get their weight from at most four ranks (two where factors
// of two come in), so that all sums stay within what fp8 e5m2 holds exactly: integers up to 8, and powers of
// two.
double input_value(ncclDataType_t type, Op op, std::size_t j, int rank, int ranks) {
  auto r = static_cast<std::size_t>(rank);
  auto n = static_cast<std::size_t>(ranks);
  double sign = is_signed(type) && (hash(j, 1) & 1U) != 0 ? -1.0 : 1.0;
  bool weighs = (j + r) % n < 1 + j % (op == Op::mulsum ? 2 : 4);
  switch (op) {
    case Op::max:
    case Op::min:
      return sign * static_cast<double>(1 + hash(j, r + 2) % 15);  // no zero: its sign is open
    case Op::prod:
      return weighs ? 2.0 * sign : 1.0;
    default:
      return weighs ? sign * static_cast<double>(1 + (hash(j, r + 2) & 1U)) : 0.0;
  }
}

double divided(ncclDataType_t type, double sum, int ranks) {
  if (type == ncclFloat64) return sum / ranks;
  if (type == ncclFloat32 || is_small_float(type)) return static_cast<float>(sum) / static_cast<float>(ranks);
  return std::trunc(sum / ranks);
}

double result_value(ncclDataType_t type, Op op, std::size_t j, int ranks) {
  double result = input_value(type, op, j, 0, ranks) * (op == Op::mulsum ? premul_factor(0) : 1);
  for (int r = 1; r < ranks; ++r) {
    double value = input_value(type, op, j, r, ranks);
    switch (op) {
      case Op::max:
        result = std::max(result, value);
        break;
      case Op::min:
        result = std::min(result, value);
        break;
      case Op::prod:
        result *= value;
        break;
      case Op::mulsum:
        result += value * premul_factor(r);
        break;
      default:
        result += value;
    }
  }
  return op == Op::avg ? divided(type, result, ranks) : result;
}

template <class ValueAt>
std::vector<std::byte> make_period(ncclDataType_t type, ValueAt value_at) {
  std::size_t element = size_of(type);
  std::vector<std::byte> period(kPeriod * element);
  for (std::size_t j = 0; j < kPeriod; ++j) encode(type, value_at(j), &period[j * element]);
  return period;
}

// Calls back for every stretch of the data that is contiguous in the period.
template <class Stretch>
void walk(std::size_t offset, std::size_t count, Stretch stretch) {
  std::size_t done = 0;
  while (done < count) {
    std::size_t at = (offset + done) % kPeriod;
    std::size_t length = std::min(kPeriod - at, count - done);
    stretch(done, at, length);
    done += length;
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  constexpr std::size_t kSizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kSizes[static_cast<int>(type)];
}

void encode(ncclDataType_t type, double value, void* element) {
  switch (type) {
    case ncclInt8:
      return store<std::int8_t>(value, element);
    case ncclUint8:
      return store<std::uint8_t>(value, element);
    case ncclInt32:
      return store<std::int32_t>(value, element);
    case ncclUint32:
      return store<std::uint32_t>(value, element);
    case ncclInt64:
      return store<std::int64_t>(value, element);
    case ncclUint64:
      return store<std::uint64_t>(value, element);
    case ncclFloat32:
      return store<float>(value, element);
    case ncclFloat64:
      return store<double>(value, element);
    default:
      break;
  }
  std::uint32_t bits = encode_bits(format_of(type), value, size_of(type) == 1);
  std::memcpy(element, &bits, size_of(type));  // little-endian
}

double decode(ncclDataType_t type, const void* element) {
  switch (type) {
    case ncclInt8:
      return load<std::int8_t>(element);
    case ncclUint8:
      return load<std::uint8_t>(element);
    case ncclInt32:
      return load<std::int32_t>(element);
    case ncclUint32:
      return load<std::uint32_t>(element);
    case ncclInt64:
      return load<std::int64_t>(element);
    case ncclUint64:
      return load<std::uint64_t>(element);
    case ncclFloat32:
      return load<float>(element);
    case ncclFloat64:
      return load<double>(element);
    default:
      break;
  }
  std::uint32_t bits = 0;
  std::memcpy(&bits, element, size_of(type));
  return decode_bits(format_of(type), bits);
}

double premul_factor(int rank) { return rank % 2 == 0 ? 1 : 2; }

std::vector<std::byte> reduction_input(ncclDataType_t type, Op op, int rank, int ranks) {
  return make_period(type, [&](std::size_t j) { return input_value(type, op, j, rank, ranks); });
}

std::vector<std::byte> reduction_result(ncclDataType_t type, Op op, int ranks) {
  return make_period(type, [&](std::size_t j) { return result_value(type, op, j, ranks); });
}

std::vector<std::byte> plain_input(ncclDataType_t type, int rank) {
  return make_period(type, [&](std::size_t j) {
    return static_cast<double>(hash(j, static_cast<std::uint64_t>(rank) + 2) % 16);
  });
}

void fill(void* destination, const std::vector<std::byte>& period, std::size_t element, std::size_t offset,
          std::size_t count) {
  auto* to = static_cast<std::byte*>(destination);
  walk(offset, count, [&](std::size_t done, std::size_t at, std::size_t length) {
    std::memcpy(to + done * element, &period[at * element], length * element);
  });
}

std::size_t count_wrong(const void* data, const std::vector<std::byte>& period, std::size_t element,
                        std::size_t offset, std::size_t count) {
  const auto* from = static_cast<const std::byte*>(data);
  std::size_t wrong = 0;
  walk(offset, count, [&](std::size_t done, std::size_t at, std::size_t length) {
    if (std::memcmp(from + done * element, &period[at * element], length * element) == 0) return;
    for (std::size_t i = 0; i < length; ++i)
      if (std::memcmp(from + (done + i) * element, &period[(at + i) * element], element) != 0) ++wrong;
  });
  return wrong;
}

}  // namespace values
