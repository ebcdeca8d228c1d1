// SPDX-License-Identifier: BSD-3-Clause
//
// How elements of each format become vectors of the type that is computed with, and back. Included once for
// every instruction set, by files that Highway compiles so.
#if defined(TUTTI_CODECS_INL_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_CODECS_INL_
#undef TUTTI_CODECS_INL_
#else
#define TUTTI_CODECS_INL_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "reduce/small_float.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A codec says how elements in memory become lanes of the type that is computed with.
template <class T>
struct Native {
  using Element = T;
  using Lane = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const T* from) {
    return hn::LoadU(d, from);
  }
  template <class D>
  static HWY_INLINE void Store(hn::Vec<D> v, D d, T* to) {
    hn::StoreU(v, d, to);
  }
  template <class D>
  static HWY_INLINE void Stream(hn::Vec<D> v, D d, T* to) {
    hn::Stream(v, d, to);
  }
};

// A 16-bit float computed with as float; Format gives Decode and Encode between the vectors.
template <class Format>
struct Widened {
  using Element = std::uint16_t;
  using Lane = float;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Element* from) {
    const hn::Rebind<std::uint16_t, D> du16;
    return Format::Decode(d, hn::LoadU(du16, from));
  }
  template <class D>
  static HWY_INLINE void Store(hn::Vec<D> v, D d, Element* to) {
    const hn::Rebind<std::uint16_t, D> du16;
    hn::StoreU(Format::Encode(v, d), du16, to);
  }
  template <class D>
  static HWY_INLINE void Stream(hn::Vec<D> v, D d, Element* to) {
    const hn::Rebind<std::uint16_t, D> du16;
    if constexpr (hn::MaxLanes(du16) >= 8)
      hn::Stream(Format::Encode(v, d), du16, to);
    else  // less than a 16-byte store
      hn::StoreU(Format::Encode(v, d), du16, to);
  }
};

struct Bfloat16 {
  template <class D, class V16>
  static HWY_INLINE hn::Vec<D> Decode(D d, V16 bits) {
    const hn::RebindToUnsigned<D> du32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
  }
  // Nearest, ties to even; a NaN stays one (its payload is cut, so a mantissa bit is set).
  template <class D>
  static HWY_INLINE auto Encode(hn::Vec<D> v, D) {
    const hn::Rebind<std::uint16_t, D> du16;
    const hn::RebindToUnsigned<D> du32;
    const hn::RebindToSigned<D> di32;
    const auto bits = hn::BitCast(du32, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du32, 0x7FFF)));
    const auto quiet = hn::Or(bits, hn::Set(du32, 0x00400000));
    const auto chosen = hn::IfThenElse(hn::RebindMask(du32, hn::IsNaN(v)), quiet, rounded);
    return hn::DemoteTo(du16, hn::BitCast(di32, hn::ShiftRight<16>(chosen)));
  }
};

// Formats that the instruction set has no conversion for: lanes go through a small array.
template <class Format>
struct Converted {
  using Element = typename Format::Bits;
  using Lane = float;
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Element* from) {
    Element elements[hn::MaxLanes(D())];
    std::memcpy(elements, from, sizeof elements);  // of any alignment
    HWY_ALIGN float lanes[hn::MaxLanes(D())];
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = Format::decode(elements[i]);
    return hn::Load(d, lanes);
  }
  template <class D>
  static HWY_INLINE void Store(hn::Vec<D> v, D d, Element* to) {
    HWY_ALIGN float lanes[hn::MaxLanes(D())];
    hn::Store(v, d, lanes);
    Element elements[hn::MaxLanes(D())];
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) elements[i] = Format::encode(lanes[i]);
    std::memcpy(to, elements, sizeof elements);
  }
  template <class D>
  static HWY_INLINE void Stream(hn::Vec<D> v, D d, Element* to) {
    Store(v, d, to);
  }
};

// Highway's stand-in for targets without half conversions truncates; results must not depend on the machine.
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
using Half = Converted<Float16>;
#else
struct Float16Vectors {
  template <class D, class V16>
  static HWY_INLINE hn::Vec<D> Decode(D d, V16 bits) {
    const hn::Rebind<hwy::float16_t, D> dhalf;
    return hn::PromoteTo(d, hn::BitCast(dhalf, bits));
  }
  template <class D>
  static HWY_INLINE auto Encode(hn::Vec<D> v, D) {
    const hn::Rebind<std::uint16_t, D> du16;
    const hn::Rebind<hwy::float16_t, D> dhalf;
    return hn::BitCast(du16, hn::DemoteTo(dhalf, v));
  }
};
using Half = Widened<Float16Vectors>;
#endif

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
