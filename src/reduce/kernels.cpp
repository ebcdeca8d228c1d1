// SPDX-License-Identifier: BSD-3-Clause
//
// The kernels, compiled once for every instruction set that Highway knows and chosen at run time.
#include "reduce/kernels.hpp"

#include <cmath>
#include <cstring>

#include "reduce/small_float.hpp"

// One target for each width of vector is enough, and each costs half a minute of building.
#define HWY_DISABLED_TARGETS HWY_SSSE3
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "reduce/codecs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Table = std::array<std::array<ReduceFunction, kOperatorKindCount>, kDataTypeCount>;

// Products wrap like sums: lanes of one byte are multiplied as the even and odd halves of 16-bit lanes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Multiply(D d, V a, V b) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 1 && hn::MaxLanes(D()) == 1) {
    return hn::Set(d, static_cast<T>(hn::GetLane(a) * hn::GetLane(b)));
  } else if constexpr (sizeof(T) == 1) {
    const hn::Repartition<std::uint16_t, D> d16;
    const auto a16 = hn::BitCast(d16, a);
    const auto b16 = hn::BitCast(d16, b);
    const auto even = hn::And(hn::Mul(a16, b16), hn::Set(d16, 0x00FF));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
    return hn::BitCast(d, hn::Or(even, odd));
  } else {
    return hn::Mul(a, b);
  }
}

template <OperatorKind kKind, class D, class V = hn::Vec<D>>
HWY_INLINE V Combine(D d, V a, V b) {
  if constexpr (kKind == OperatorKind::prod) {
    return Multiply(d, a, b);
  } else if constexpr (kKind == OperatorKind::max || kKind == OperatorKind::min) {
    V chosen;
    if constexpr (kKind == OperatorKind::max)
      chosen = hn::Max(a, b);
    else
      chosen = hn::Min(a, b);
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {  // a number wins over a NaN, as fmax and fmin have it
      chosen = hn::IfThenElse(hn::IsNaN(b), a, chosen);
      chosen = hn::IfThenElse(hn::IsNaN(a), b, chosen);
    }
    return chosen;
  } else {
    return hn::Add(a, b);
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Divide(D d, V v, int divisor) {
  using T = hn::TFromD<D>;
  if constexpr (hwy::IsFloat<T>()) {
    return hn::Div(v, hn::Set(d, static_cast<T>(divisor)));
  } else {
    HWY_ALIGN T lanes[hn::MaxLanes(D())];
    hn::Store(v, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d);
         ++i)  // wide enough that an int8 of up to 2^31 ranks is divided right
      lanes[i] = static_cast<T>(
          lanes[i] /
          static_cast<std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>(divisor));
    return hn::Load(d, lanes);
  }
}

template <class Codec, OperatorKind kKind>
struct Kernel {
  using Element = typename Codec::Element;
  using Lane = typename Codec::Lane;
  using D = hn::ScalableTag<Lane>;
  using V = hn::Vec<D>;
  static HWY_INLINE V Operand(D d, const ReduceCall& call, int k, const Element* from, V factor) {
    V v = Codec::Load(d, from);
    if constexpr (kKind == OperatorKind::premul_sum) {
      if (k == call.scaled_operand) v = Multiply(d, v, factor);
    } else {
      (void)call, (void)k, (void)factor;
    }
    return v;
  }

  template <class AnyD>
  static HWY_INLINE hn::Vec<AnyD> Factor(AnyD d, const ReduceCall& call) {
    if constexpr (kKind == OperatorKind::premul_sum) {
      HWY_ALIGN Element elements[hn::MaxLanes(AnyD())];
      Element element;
      std::memcpy(&element, &call.scalar, sizeof element);
      for (std::size_t i = 0; i < hn::Lanes(d); ++i) elements[i] = element;
      return Codec::Load(d, elements);
    } else {
      (void)call;
      return hn::Zero(d);
    }
  }

  template <class AnyD>
  static HWY_INLINE hn::Vec<AnyD> Finish(AnyD d, const ReduceCall& call, hn::Vec<AnyD> v) {
    if constexpr (kKind == OperatorKind::avg) {
      if (call.divisor != 1) return Divide(d, v, call.divisor);
    }
    return v;
  }

  // kCount elements from `at` on, in one short vector, by way of an aligned array: Highway takes the elements
  // of vectors shorter than its shortest through a pointer to one, which must not lie at an odd address.
  template <std::size_t kCount>
  static HWY_INLINE void Few(const ReduceCall& call, std::size_t at) {
    const hn::CappedTag<Lane, kCount> d;
    HWY_ALIGN Element elements[kCount];
    auto operand = [&](int k) {
      std::memcpy(elements, static_cast<const Element*>(call.operands[k]) + at, sizeof elements);
      auto v = Codec::Load(d, elements);
      if constexpr (kKind == OperatorKind::premul_sum)
        if (k == call.scaled_operand) v = Multiply(d, v, Factor(d, call));
      return v;
    };
    auto sum = operand(0);
    for (int k = 1; k < call.operand_count; ++k) sum = Combine<kKind>(d, sum, operand(k));
    Codec::Store(Finish(d, call, sum), d, elements);
    for (int j = 0; j < call.output_count; ++j)
      std::memcpy(static_cast<Element*>(call.outputs[static_cast<std::size_t>(j)]) + at, elements,
                  sizeof elements);
  }

  // Below a vector's length: 4, 2 and 1 at a time, as far as the instruction set has them.
  static void Short(const ReduceCall& call) {
    constexpr std::size_t kMost = HWY_MIN(hn::MaxLanes(D()), 4);
    std::size_t at = 0;
    for (; at + kMost <= call.count; at += kMost) Few<kMost>(call, at);
    if constexpr (kMost == 4)
      for (; at + 2 <= call.count; at += 2) Few<2>(call, at);
    for (; at < call.count; ++at) Few<1>(call, at);
  }

  // Elements [at, at + n) with n below a vector: through arrays of a vector's size.
  static void Partial(const ReduceCall& call, std::size_t at, std::size_t n) {
    const D d;
    const V factor = Factor(d, call);
    HWY_ALIGN Element lanes[hn::MaxLanes(D())] = {};
    V sum = hn::Zero(d);
    for (int k = 0; k < call.operand_count; ++k) {
      std::memcpy(lanes, static_cast<const Element*>(call.operands[k]) + at, n * sizeof(Element));
      const V v = Operand(d, call, k, lanes, factor);
      sum = k == 0 ? v : Combine<kKind>(d, sum, v);
    }
    Codec::Store(Finish(d, call, sum), d, lanes);
    for (int j = 0; j < call.output_count; ++j)
      std::memcpy(static_cast<Element*>(call.outputs[static_cast<std::size_t>(j)]) + at, lanes,
                  n * sizeof(Element));
  }

  // kOperands: their number where it is known at compile time, else 0.
  template <int kOperands>
  static void Vectors(const ReduceCall& call, std::size_t begin, std::size_t end,
                      std::array<bool, 2> stream) {
    const D d;
    const std::size_t lanes = hn::Lanes(d);
    const V factor = Factor(d, call);
    const int operands = kOperands != 0 ? kOperands : call.operand_count;
    const bool two = call.output_count == 2;
    const auto* const* from = reinterpret_cast<const Element* const*>(call.operands);
    auto* out0 = static_cast<Element*>(call.outputs[0]);
    auto* out1 = static_cast<Element*>(call.outputs[1]);
    for (std::size_t i = begin; i < end; i += lanes) {
      V sum = Operand(d, call, 0, from[0] + i, factor);
      for (int k = 1; k < operands; ++k)
        sum = Combine<kKind>(d, sum, Operand(d, call, k, from[k] + i, factor));
      sum = Finish(d, call, sum);
      if (stream[0])
        Codec::Stream(sum, d, out0 + i);
      else
        Codec::Store(sum, d, out0 + i);
      if (!two) continue;
      if (stream[1])
        Codec::Stream(sum, d, out1 + i);
      else
        Codec::Store(sum, d, out1 + i);
    }
  }

  static bool AlignedAt(const void* base, std::size_t element) {
    const std::size_t bytes = hn::Lanes(D()) * sizeof(Element);
    return (reinterpret_cast<std::uintptr_t>(base) + element * sizeof(Element)) % bytes == 0;
  }

  static void Run(const ReduceCall& call) { return call.count <= 8 ? Short(call) : Long(call); }

  static HWY_NOINLINE void Long(const ReduceCall& call) {
    const std::size_t lanes = hn::Lanes(D());
    std::size_t begin = 0;
    const bool long_enough = call.count >= 4 * lanes;
    std::array<bool, 2> stream = {call.streaming[0] && long_enough,
                                  call.streaming[1] && long_enough && call.output_count == 2};
    if (stream[0] || stream[1]) {  // up to where the one that is streamed can be stored past the cache
      const void* streamed = call.outputs[stream[0] ? 0 : 1];
      while (begin < lanes && !AlignedAt(streamed, begin)) ++begin;
      if (begin == lanes) begin = 0;  // an odd address: no vector is aligned
      if (begin != 0) Partial(call, 0, begin);
      for (std::size_t k = 0; k < stream.size(); ++k)
        stream[k] = stream[k] && AlignedAt(call.outputs[k], begin);
    }
    const std::size_t end = begin + (call.count - begin) / lanes * lanes;
    if (end > begin) {
      if (call.operand_count == 2)
        Vectors<2>(call, begin, end, stream);
      else
        Vectors<0>(call, begin, end, stream);
    }
    if (end < call.count) Partial(call, end, call.count - end);
    if (stream[0] || stream[1]) hwy::FlushStream();
  }
};

template <class Codec>
constexpr std::array<ReduceFunction, kOperatorKindCount> Row() {
  return {&Kernel<Codec, OperatorKind::sum>::Run, &Kernel<Codec, OperatorKind::prod>::Run,
          &Kernel<Codec, OperatorKind::max>::Run, &Kernel<Codec, OperatorKind::min>::Run,
          &Kernel<Codec, OperatorKind::avg>::Run, &Kernel<Codec, OperatorKind::premul_sum>::Run};
}

const Table& Kernels() {
  static constexpr Table kTable = {Row<Native<std::int8_t>>(),
                                   Row<Native<std::uint8_t>>(),
                                   Row<Native<std::int32_t>>(),
                                   Row<Native<std::uint32_t>>(),
                                   Row<Native<std::int64_t>>(),
                                   Row<Native<std::uint64_t>>(),
                                   Row<Half>(),
                                   Row<Native<float>>(),
                                   Row<Native<double>>(),
                                   Row<Widened<Bfloat16>>(),
                                   Row<Converted<Float8E4M3>>(),
                                   Row<Converted<Float8E5M2>>()};
  return kTable;
}

void CopyStreaming(void* destination, const void* source, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  auto* to = static_cast<std::uint8_t*>(destination);
  const auto* from = static_cast<const std::uint8_t*>(source);
  std::size_t head = (lanes - reinterpret_cast<std::uintptr_t>(to) % lanes) % lanes;
  if (bytes < head + 4 * lanes) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + 4 * lanes <= bytes; at += 4 * lanes) {
    const auto a = hn::LoadU(d, from + at);
    const auto b = hn::LoadU(d, from + at + lanes);
    const auto c = hn::LoadU(d, from + at + 2 * lanes);
    const auto e = hn::LoadU(d, from + at + 3 * lanes);
    hn::Stream(a, d, to + at);
    hn::Stream(b, d, to + at + lanes);
    hn::Stream(c, d, to + at + 2 * lanes);
    hn::Stream(e, d, to + at + 3 * lanes);
  }
  std::memcpy(to + at, from + at, bytes - at);
  hwy::FlushStream();
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
HWY_EXPORT(Kernels);
HWY_EXPORT(CopyStreaming);
HWY_EXPORT(TargetName);

ReduceFunction reduce_function(DataType type, OperatorKind kind) {
  return HWY_DYNAMIC_DISPATCH(Kernels)()[static_cast<std::size_t>(type)][static_cast<std::size_t>(kind)];
}

void copy_streaming(void* destination, const void* source, std::size_t bytes) {
  HWY_DYNAMIC_DISPATCH(CopyStreaming)(destination, source, bytes);
}

const char* kernel_target_name() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace tutti
#endif
