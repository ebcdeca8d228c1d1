// SPDX-License-Identifier: BSD-3-Clause
#include "reduce/kernels.hpp"

#include <cmath>
#include <cstring>
#include <random>

#include "bench/values.hpp"
#include "reduce/small_float.hpp"
#include "support/catch.hpp"

using namespace tutti;

namespace {

ncclDataType_t to_nccl(DataType type) { return static_cast<ncclDataType_t>(type); }

// The serial reference, in double: exact for the small numbers used here.
double reference(DataType type, OperatorKind kind, const std::vector<double>& operands, double factor,
                 int divisor) {
  double result = operands[0] * (kind == OperatorKind::premul_sum ? factor : 1);
  for (std::size_t k = 1; k < operands.size(); ++k) {
    switch (kind) {
      case OperatorKind::prod:
        result *= operands[k];
        break;
      case OperatorKind::max:
        result = std::fmax(result, operands[k]);
        break;
      case OperatorKind::min:
        result = std::fmin(result, operands[k]);
        break;
      default:
        result += operands[k];
    }
  }
  if (kind != OperatorKind::avg) return result;
  if (type < DataType::float16) return std::trunc(result / divisor);
  if (type == DataType::float64) return result / divisor;
  return static_cast<float>(result) / static_cast<float>(divisor);
}

struct Case {
  DataType type;
  OperatorKind kind;
  int operands;
  std::size_t count;
  std::size_t shift;  // bytes off alignment
  bool streaming, two_outputs;
};

// Every element right, nothing before or after touched.
bool is_right(const Case& c, std::mt19937& random) {
  std::size_t element = size_of(c.type);
  bool is_unsigned = c.type == DataType::uint8 || c.type == DataType::uint32 || c.type == DataType::uint64;
  std::uniform_int_distribution<int> values(is_unsigned ? 0 : -2, 2);
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::vector<double>> numbers(c.count);
  std::vector<const void*> pointers;
  for (int k = 0; k < c.operands; ++k) {
    inputs.emplace_back(c.count * element + 64 + c.shift);
    for (std::size_t i = 0; i < c.count; ++i) {
      double value = c.kind == OperatorKind::prod && k > 2 ? 1 : values(random);
      numbers[i].push_back(value);
      values::encode(to_nccl(c.type), value, &inputs.back()[c.shift + i * element]);
    }
  }
  for (auto& input : inputs) pointers.push_back(input.data() + c.shift);
  constexpr std::size_t kGuard = 128;
  std::vector<std::vector<std::byte>> outputs(
      2, std::vector<std::byte>(c.count * element + 2 * kGuard + c.shift, std::byte{0x5A}));
  ReduceCall call{.operands = pointers.data(), .operand_count = c.operands};
  call.outputs = {outputs[0].data() + kGuard + c.shift, outputs[1].data() + kGuard};
  call.output_count = c.two_outputs ? 2 : 1;
  call.count = c.count;
  call.streaming = {c.streaming, c.streaming};
  call.divisor = c.kind == OperatorKind::avg ? c.operands : 1;
  if (c.kind == OperatorKind::premul_sum) {
    call.scaled_operand = 0;
    values::encode(to_nccl(c.type), 2, &call.scalar);
  }
  reduce_function(c.type, c.kind)(call);
  for (int j = 0; j < call.output_count; ++j) {
    std::size_t begin = kGuard + (j == 0 ? c.shift : 0);
    const auto& output = outputs[static_cast<std::size_t>(j)];
    for (std::size_t i = 0; i < c.count; ++i) {
      std::byte expected[8];
      double value = reference(c.type, c.kind, numbers[i], 2, call.divisor);
      values::encode(to_nccl(c.type), value, expected);
      double got = values::decode(to_nccl(c.type), &output[begin + i * element]);
      if (got != values::decode(to_nccl(c.type), expected)) return false;
    }
    for (std::size_t i = 0; i < output.size(); ++i)
      if ((i < begin || i >= begin + c.count * element) && output[i] != std::byte{0x5A}) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("kernels agree with a serial reference for every type, operator and number of operands") {
  std::mt19937 random(1);
  for (int t = 0; t < kDataTypeCount; ++t)
    for (int k = 0; k < kOperatorKindCount; ++k)
      for (int operands : {1, 2, 3, 4, 5, 9})
        for (std::size_t count : {1UL, 2UL, 7UL, 64UL, 257UL, 1000UL})
          for (std::size_t shift : {0UL, 1UL, 3UL})
            for (bool streaming : {false, true}) {
              Case c{static_cast<DataType>(t),
                     static_cast<OperatorKind>(k),
                     operands,
                     count,
                     shift,
                     streaming,
                     operands != 2};
              INFO(name_of(c.type) << " " << name_of(c.kind) << " operands " << operands << " count " << count
                                   << " shift " << shift << " streaming " << streaming);
              CHECK(is_right(c, random));
            }
}

TEST_CASE("of a number and a NaN, max and min give the number") {
  float nan = std::nanf("");
  std::vector<float> a(20, nan), b(20, 3.0F), out(20);
  a[7] = 5;
  b[9] = nan;
  for (auto kind : {OperatorKind::max, OperatorKind::min}) {
    const void* operands[] = {a.data(), b.data()};
    ReduceCall call{.operands = operands, .operand_count = 2};
    call.outputs = {out.data(), nullptr};
    call.output_count = 1;
    call.count = out.size();
    reduce_function(DataType::float32, kind)(call);
    CHECK(out[0] == 3.0F);
    CHECK(out[7] == (kind == OperatorKind::max ? 5.0F : 3.0F));
    CHECK(std::isnan(out[9]));
  }
}

TEST_CASE("integer sums and products wrap") {
  std::vector<std::int8_t> a(33, 100), b(33, 100), out(33);
  const void* operands[] = {a.data(), b.data()};
  ReduceCall call{.operands = operands, .operand_count = 2};
  call.outputs = {out.data(), nullptr};
  call.output_count = 1;
  call.count = out.size();
  reduce_function(DataType::int8, OperatorKind::sum)(call);
  CHECK(static_cast<int>(out[32]) == static_cast<std::int8_t>(200));
  reduce_function(DataType::int8, OperatorKind::prod)(call);
  CHECK(static_cast<int>(out[32]) == static_cast<std::int8_t>(10000 & 0xFF));
}

TEST_CASE("half types round to nearest even, in the sum of all operands and not after each") {
  // 2048 + 1 + 1: each addition alone would be lost in half precision, both together are not.
  for (ncclDataType_t type : {ncclFloat16, ncclBfloat16}) {
    double large = type == ncclFloat16 ? 2048 : 256;
    std::vector<std::uint16_t> a(40), b(40), out(40);
    for (std::size_t i = 0; i < a.size(); ++i) {
      values::encode(type, large, &a[i]);
      values::encode(type, 1, &b[i]);
    }
    const void* operands[] = {a.data(), b.data(), b.data()};
    ReduceCall call{.operands = operands, .operand_count = 3};
    call.outputs = {out.data(), nullptr};
    call.output_count = 1;
    call.count = out.size();
    reduce_function(static_cast<DataType>(type), OperatorKind::sum)(call);
    CHECK(values::decode(type, &out[39]) == large + 2);
  }
}

TEST_CASE("half conversions agree with an independent implementation") {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    auto word = static_cast<std::uint16_t>(bits);
    float value = Float16::decode(word);
    double expected = values::decode(ncclFloat16, &word);
    if (std::isnan(value) ? !std::isnan(expected) : value != expected) FAIL("half " << bits);
    if (!std::isnan(value) && Float16::encode(value) != word) FAIL("half " << bits);
  }
  std::mt19937 random(4);
  for (int i = 0; i < 200000; ++i) {
    float value = std::ldexp(std::uniform_real_distribution<float>(-2, 2)(random),
                             static_cast<int>(random() % 45) - 27);
    std::uint16_t expected = 0;
    values::encode(ncclFloat16, value, &expected);
    if (Float16::encode(value) != expected) FAIL("half of " << value);
  }
}

TEST_CASE("fp8 conversions agree with an independent implementation") {
  for (int bits = 0; bits < 256; ++bits) {
    auto byte = static_cast<std::uint8_t>(bits);
    float four = Float8E4M3::decode(byte);
    float five = Float8E5M2::decode(byte);
    CHECK((std::isnan(four) ? std::isnan(values::decode(ncclFloat8e4m3, &byte))
                            : four == values::decode(ncclFloat8e4m3, &byte)));
    CHECK((std::isnan(five) ? std::isnan(values::decode(ncclFloat8e5m2, &byte))
                            : five == values::decode(ncclFloat8e5m2, &byte)));
  }
  std::mt19937 random(2);
  std::uniform_real_distribution<float> exponent(-20, 20);
  for (int i = 0; i < 200000; ++i) {
    float value =
        std::ldexp(std::uniform_real_distribution<float>(-2, 2)(random), static_cast<int>(exponent(random)));
    std::uint8_t expected = 0;
    values::encode(ncclFloat8e4m3, value, &expected);
    if (Float8E4M3::encode(value) != expected) FAIL("e4m3 of " << value);
    values::encode(ncclFloat8e5m2, value, &expected);
    if (Float8E5M2::encode(value) != expected) FAIL("e5m2 of " << value);
  }
}

TEST_CASE("a streaming copy moves every byte and no other") {
  for (std::size_t bytes : {0UL, 1UL, 63UL, 64UL, 300UL, 4099UL})
    for (std::size_t shift : {0UL, 5UL}) {
      std::vector<std::byte> from(bytes + 8), to(bytes + 200, std::byte{9});
      for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7);
      copy_streaming(to.data() + 64 + shift, from.data() + 3, bytes);
      CHECK((bytes == 0 || std::memcmp(to.data() + 64 + shift, from.data() + 3, bytes) == 0));
      CHECK(to[63 + shift] == std::byte{9});
      CHECK(to[64 + shift + bytes] == std::byte{9});
    }
}
