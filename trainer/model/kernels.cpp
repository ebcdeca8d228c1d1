// SPDX-License-Identifier: BSD-3-Clause
//
// Compiled once for every instruction set that Highway knows and chosen at run time.
#include "model/kernels.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "model/random.hpp"

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "reduce/codecs-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace trainer::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace codecs = tutti::HWY_NAMESPACE;

using Float = codecs::Native<float>;
using Vector = hn::ScalableTag<float>;
using Single = hn::CappedTag<float, 1>;

// Calls f with the codec of a type.
template <class F>
HWY_INLINE void With(Type type, F f) {
  switch (type) {
    case Type::Float32:
      f(Float());
      return;
    case Type::Bfloat16:
      f(codecs::Widened<codecs::Bfloat16>());
      return;
    case Type::Float16:
      f(codecs::Half());
      return;
  }
}

template <class Codec>
const typename Codec::Element* In(const void* data) {
  return static_cast<const typename Codec::Element*>(data);
}
template <class Codec>
typename Codec::Element* Out(void* data) {
  return static_cast<typename Codec::Element*>(data);
}

// f(tag, i) for vectors at i, and one by one for what is left.
template <class F>
HWY_INLINE void ForEach(Index count, F f) {
  const Vector d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= count; i += lanes) f(d, i);
  for (const Single one; i < count; ++i) f(one, i);
}

// The sum of f(tag, i): four sums side by side hide the latency of an addition.
template <class F>
HWY_INLINE float Sum(Index count, F f) {
  const Vector d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  Index i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = hn::Add(s0, f(d, i));
    s1 = hn::Add(s1, f(d, i + lanes));
    s2 = hn::Add(s2, f(d, i + 2 * lanes));
    s3 = hn::Add(s3, f(d, i + 3 * lanes));
  }
  for (; i + lanes <= count; i += lanes) s0 = hn::Add(s0, f(d, i));
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (const Single one; i < count; ++i) sum += hn::GetLane(f(one, i));
  return sum;
}

template <class Codec>
float Maximum(const typename Codec::Element* x, Index count) {
  const Vector d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto most = hn::Set(d, -std::numeric_limits<float>::infinity());
  Index i = 0;
  for (; i + lanes <= count; i += lanes) most = hn::Max(most, Codec::Load(d, x + i));
  float maximum = hn::GetLane(hn::MaxOfLanes(d, most));
  for (const Single one; i < count; ++i) maximum = std::max(maximum, hn::GetLane(Codec::Load(one, x + i)));
  return maximum;
}

void Convert(Type from_type, const void* from, Type to_type, void* to, Index count) {
  With(from_type, [&](auto source) {
    With(to_type, [&](auto target) {
      using S = decltype(source);
      using T = decltype(target);
      auto* in = In<S>(from);
      auto* out = Out<T>(to);
      ForEach(count, [&](auto d, Index i) HWY_ATTR { T::Store(S::Load(d, in + i), d, out + i); });
    });
  });
}

void LayerNorm(Type type, const void* x_data, const void* weight_data, const void* bias_data, void* y_data,
               float* means, float* rstds, Index rows, Index columns) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    auto *weight = In<C>(weight_data), *bias = In<C>(bias_data);
    const float share = 1.0F / static_cast<float>(columns);
    for (Index r = 0; r < rows; ++r) {
      auto* x = In<C>(x_data) + r * columns;
      auto* y = Out<C>(y_data) + r * columns;
      const float mean = share * Sum(columns, [&](auto d, Index i) HWY_ATTR { return C::Load(d, x + i); });
      const float variance = share * Sum(columns, [&](auto d, Index i) HWY_ATTR {
                               const auto difference = hn::Sub(C::Load(d, x + i), hn::Set(d, mean));
                               return hn::Mul(difference, difference);
                             });
      const float rstd = 1.0F / std::sqrt(variance + 1e-5F);
      ForEach(columns, [&](auto d, Index i) HWY_ATTR {
        const auto normal = hn::Mul(hn::Sub(C::Load(d, x + i), hn::Set(d, mean)), hn::Set(d, rstd));
        C::Store(hn::MulAdd(normal, C::Load(d, weight + i), C::Load(d, bias + i)), d, y + i);
      });
      means[r] = mean;
      rstds[r] = rstd;
    }
  });
}

void LayerNormBackward(Type type, const void* dy_data, const void* x_data, const void* weight_data,
                       const float* means, const float* rstds, const void* residual_data, void* dx_data,
                       float* d_weight, float* d_bias, Index rows, Index columns) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    auto* weight = In<C>(weight_data);
    const float share = 1.0F / static_cast<float>(columns);
    for (Index r = 0; r < rows; ++r) {
      auto *dy = In<C>(dy_data) + r * columns, *x = In<C>(x_data) + r * columns;
      auto* residual = residual_data == nullptr ? nullptr : In<C>(residual_data) + r * columns;
      auto* dx = Out<C>(dx_data) + r * columns;
      const float mean = means[r], rstd = rstds[r];
      auto normal = [&](auto d, Index i) HWY_ATTR {
        return hn::Mul(hn::Sub(C::Load(d, x + i), hn::Set(d, mean)), hn::Set(d, rstd));
      };
      auto d_normal = [&](auto d, Index i)
                          HWY_ATTR { return hn::Mul(C::Load(d, dy + i), C::Load(d, weight + i)); };
      const float along_one = share * Sum(columns, d_normal);
      const float along_normal = share * Sum(columns, [&](auto d, Index i) HWY_ATTR {
                                   return hn::Mul(d_normal(d, i), normal(d, i));
                                 });
      ForEach(columns, [&](auto d, Index i) HWY_ATTR {
        const auto gradient = C::Load(d, dy + i);
        const auto n = normal(d, i);
        hn::StoreU(hn::MulAdd(gradient, n, hn::LoadU(d, d_weight + i)), d, d_weight + i);
        hn::StoreU(hn::Add(gradient, hn::LoadU(d, d_bias + i)), d, d_bias + i);
        auto change = hn::Sub(d_normal(d, i), hn::Set(d, along_one));
        change = hn::Mul(hn::NegMulAdd(n, hn::Set(d, along_normal), change), hn::Set(d, rstd));
        if (residual != nullptr) change = hn::Add(change, C::Load(d, residual + i));
        C::Store(change, d, dx + i);
      });
    }
  });
}

// gelu(x) = x s(2u) with the logistic function s and u = sqrt(2/pi) (x + 0.044715 x^3): the same as x/2 (1 +
// tanh u).
constexpr float kGeluLinear = 2.0F * 0.7978845608F, kGeluCubic = 0.044715F;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluLogistic(D d, V x) {
  const auto square = hn::Mul(x, x);
  const auto twice_u = hn::Mul(hn::Mul(hn::Set(d, kGeluLinear), x),
                               hn::MulAdd(hn::Set(d, kGeluCubic), square, hn::Set(d, 1.0F)));
  return hn::Div(hn::Set(d, 1.0F), hn::Add(hn::Set(d, 1.0F), hn::Exp(d, hn::Neg(twice_u))));
}

void Gelu(Type type, const void* x_data, void* y_data, Index count) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    auto* x = In<C>(x_data);
    auto* y = Out<C>(y_data);
    ForEach(count, [&](auto d, Index i) HWY_ATTR {
      const auto v = C::Load(d, x + i);
      C::Store(hn::Mul(v, GeluLogistic(d, v)), d, y + i);
    });
  });
}

void GeluBackward(Type type, const void* dy_data, const void* x_data, void* dx_data, Index count) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    auto *dy = In<C>(dy_data), *x = In<C>(x_data);
    auto* dx = Out<C>(dx_data);
    ForEach(count, [&](auto d, Index i) HWY_ATTR {
      const auto v = C::Load(d, x + i);
      const auto s = GeluLogistic(d, v);
      const auto one = hn::Set(d, 1.0F);
      // d(2u)/dx = kGeluLinear (1 + 3 kGeluCubic x^2)
      const auto slope =
          hn::Mul(hn::Set(d, kGeluLinear), hn::MulAdd(hn::Set(d, 3.0F * kGeluCubic), hn::Mul(v, v), one));
      const auto derivative = hn::MulAdd(hn::Mul(hn::Mul(v, s), hn::Sub(one, s)), slope, s);
      C::Store(hn::Mul(C::Load(d, dy + i), derivative), d, dx + i);
    });
  });
}

void CausalSoftmax(Type type, void* scores, float scale, Index matrices, Index size) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    for (Index row = 0; row < matrices * size; ++row) {
      auto* x = Out<C>(scores) + row * size;
      const Index seen = row % size + 1;
      const float most = Maximum<C>(x, seen);
      // Once exponentials are made they are stored, so that each is computed once.
      const float sum = Sum(seen, [&](auto d, Index i) HWY_ATTR {
        const auto e = hn::Exp(d, hn::Mul(hn::Sub(C::Load(d, x + i), hn::Set(d, most)), hn::Set(d, scale)));
        C::Store(e, d, x + i);
        return e;
      });
      const float share = 1.0F / sum;
      ForEach(seen, [&](auto d, Index i)
                        HWY_ATTR { C::Store(hn::Mul(C::Load(d, x + i), hn::Set(d, share)), d, x + i); });
      std::fill(x + seen, x + size, typename C::Element{});
    }
  });
}

void CausalSoftmaxBackward(Type type, const void* probabilities, void* gradients, float scale, Index matrices,
                           Index size) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    for (Index row = 0; row < matrices * size; ++row) {
      auto* p = In<C>(probabilities) + row * size;
      auto* dp = Out<C>(gradients) + row * size;
      const Index seen = row % size + 1;
      const float along =
          Sum(seen, [&](auto d, Index i) HWY_ATTR { return hn::Mul(C::Load(d, p + i), C::Load(d, dp + i)); });
      ForEach(seen, [&](auto d, Index i) HWY_ATTR {
        const auto change = hn::Sub(C::Load(d, dp + i), hn::Set(d, along));
        C::Store(hn::Mul(hn::Mul(C::Load(d, p + i), hn::Set(d, scale)), change), d, dp + i);
      });
      std::fill(dp + seen, dp + size, typename C::Element{});
    }
  });
}

void Add(Type type, const void* a_data, const void* b_data, void* y_data, Index count) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    auto *a = In<C>(a_data), *b = In<C>(b_data);
    auto* y = Out<C>(y_data);
    ForEach(count, [&](auto d, Index i)
                       HWY_ATTR { C::Store(hn::Add(C::Load(d, a + i), C::Load(d, b + i)), d, y + i); });
  });
}

void AddColumnSums(Type type, const void* x_data, float* sums, Index rows, Index columns) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    for (Index r = 0; r < rows; ++r) {
      auto* x = In<C>(x_data) + r * columns;
      ForEach(columns, [&](auto d, Index i) HWY_ATTR {
        hn::StoreU(hn::Add(hn::LoadU(d, sums + i), C::Load(d, x + i)), d, sums + i);
      });
    }
  });
}

void StoreGradient(Type type, const float* sums, void* gradient_data, bool accumulate, Index count) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    auto* gradient = Out<C>(gradient_data);
    ForEach(count, [&](auto d, Index i) HWY_ATTR {
      auto value = hn::LoadU(d, sums + i);
      if (accumulate) value = hn::Add(value, C::Load(d, gradient + i));
      C::Store(value, d, gradient + i);
    });
  });
}

void DropoutAdd(Type type, const void* x_data, const void* residual_data, void* y_data, float rate,
                std::uint64_t key, std::uint64_t stream, Index first, Index count) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    auto* x = In<C>(x_data);
    auto* residual = In<C>(residual_data);
    auto* y = Out<C>(y_data);
    const float kept = 1.0F / (1.0F - rate);
    std::array<std::uint32_t, 4> words{};
    const Single d;
    for (Index i = 0; i < count; ++i) {
      const auto number = static_cast<std::uint64_t>(first + i);
      if (i == 0 || number % 4 == 0) words = philox(key, stream, number / 4);
      const float factor = uniform(words[number % 4]) > static_cast<double>(rate) ? kept : 0.0F;
      auto value = hn::Mul(C::Load(d, x + i), hn::Set(d, factor));
      if (residual != nullptr) value = hn::Add(value, C::Load(d, residual + i));
      C::Store(value, d, y + i);
    }
  });
}

void RowMaxima(Type type, const void* x, float* maxima, Index rows, Index columns) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    for (Index r = 0; r < rows; ++r) maxima[r] = Maximum<C>(In<C>(x) + r * columns, columns);
  });
}

void RowExponentialSums(Type type, const void* x_data, const float* maxima, float* sums, Index rows,
                        Index columns) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    for (Index r = 0; r < rows; ++r) {
      auto* x = In<C>(x_data) + r * columns;
      sums[r] = Sum(columns, [&](auto d, Index i) HWY_ATTR {
        return hn::Exp(d, hn::Sub(C::Load(d, x + i), hn::Set(d, maxima[r])));
      });
    }
  });
}

void SoftmaxGradient(Type type, void* logits, const float* maxima, const float* sums, const Index* targets,
                     float scale, Index rows, Index columns) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    for (Index r = 0; r < rows; ++r) {
      auto* x = Out<C>(logits) + r * columns;
      const float share = scale / sums[r];
      const Index target = targets[r];
      float at_target = 0;
      const Single one;
      if (target >= 0 && target < columns) at_target = hn::GetLane(C::Load(one, x + target));
      ForEach(columns, [&](auto d, Index i) HWY_ATTR {
        const auto e = hn::Exp(d, hn::Sub(C::Load(d, x + i), hn::Set(d, maxima[r])));
        C::Store(hn::Mul(e, hn::Set(d, share)), d, x + i);
      });
      if (target >= 0 && target < columns)
        C::Store(hn::Set(one, std::exp(at_target - maxima[r]) * share - scale), one, x + target);
    }
  });
}

double SumOfSquares(Type type, const void* x_data, Index count) {
  double sum = 0;
  With(type, [&](auto codec) {
    using C = decltype(codec);
    // In floats for a few thousand, in double from there.
    constexpr Index kBlock = 4096;
    for (Index first = 0; first < count; first += kBlock) {
      auto* x = In<C>(x_data) + first;
      sum += static_cast<double>(Sum(std::min(kBlock, count - first), [&](auto d, Index i) HWY_ATTR {
        const auto v = C::Load(d, x + i);
        return hn::Mul(v, v);
      }));
    }
  });
  return sum;
}

void AdamWStep(Type type, const AdamW& how, const void* gradient_data, float* weights, float* m, float* v,
               Index count) {
  With(type, [&](auto codec) {
    using C = decltype(codec);
    auto* gradient = In<C>(gradient_data);
    ForEach(count, [&](auto d, Index i) HWY_ATTR {
      const auto g = hn::Mul(C::Load(d, gradient + i), hn::Set(d, how.gradient_scale));
      const auto m1 =
          hn::MulAdd(hn::LoadU(d, m + i), hn::Set(d, how.beta1), hn::Mul(g, hn::Set(d, 1.0F - how.beta1)));
      const auto v1 = hn::MulAdd(hn::LoadU(d, v + i), hn::Set(d, how.beta2),
                                 hn::Mul(hn::Mul(g, g), hn::Set(d, 1.0F - how.beta2)));
      hn::StoreU(m1, d, m + i);
      hn::StoreU(v1, d, v + i);
      const auto w = hn::LoadU(d, weights + i);
      const auto deviation =
          hn::Add(hn::Sqrt(hn::Mul(v1, hn::Set(d, 1.0F / how.correction2))), hn::Set(d, how.epsilon));
      auto change = hn::Div(hn::Mul(m1, hn::Set(d, 1.0F / how.correction1)), deviation);
      change = hn::MulAdd(w, hn::Set(d, how.decay), change);
      hn::StoreU(hn::NegMulAdd(change, hn::Set(d, how.rate), w), d, weights + i);
    });
  });
}

}  // namespace trainer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trainer {

HWY_EXPORT(Convert);
HWY_EXPORT(LayerNorm);
HWY_EXPORT(LayerNormBackward);
HWY_EXPORT(Gelu);
HWY_EXPORT(GeluBackward);
HWY_EXPORT(CausalSoftmax);
HWY_EXPORT(CausalSoftmaxBackward);
HWY_EXPORT(Add);
HWY_EXPORT(AddColumnSums);
HWY_EXPORT(StoreGradient);
HWY_EXPORT(DropoutAdd);
HWY_EXPORT(RowMaxima);
HWY_EXPORT(RowExponentialSums);
HWY_EXPORT(SoftmaxGradient);
HWY_EXPORT(SumOfSquares);
HWY_EXPORT(AdamWStep);

void convert(Type from_type, const void* from, Type to_type, void* to, Index count) {
  HWY_DYNAMIC_DISPATCH(Convert)(from_type, from, to_type, to, count);
}
void layer_norm(Type type, const void* x, const void* weight, const void* bias, void* y, float* mean,
                float* rstd, Index rows, Index columns) {
  HWY_DYNAMIC_DISPATCH(LayerNorm)(type, x, weight, bias, y, mean, rstd, rows, columns);
}
void layer_norm_backward(Type type, const void* dy, const void* x, const void* weight, const float* mean,
                         const float* rstd, const void* d_residual, void* dx, float* d_weight, float* d_bias,
                         Index rows, Index columns) {
  HWY_DYNAMIC_DISPATCH(LayerNormBackward)
  (type, dy, x, weight, mean, rstd, d_residual, dx, d_weight, d_bias, rows, columns);
}
void gelu(Type type, const void* x, void* y, Index count) { HWY_DYNAMIC_DISPATCH(Gelu)(type, x, y, count); }
void gelu_backward(Type type, const void* dy, const void* x, void* dx, Index count) {
  HWY_DYNAMIC_DISPATCH(GeluBackward)(type, dy, x, dx, count);
}
void causal_softmax(Type type, void* scores, float scale, Index matrices, Index size) {
  HWY_DYNAMIC_DISPATCH(CausalSoftmax)(type, scores, scale, matrices, size);
}
void causal_softmax_backward(Type type, const void* probabilities, void* d_probabilities, float scale,
                             Index matrices, Index size) {
  HWY_DYNAMIC_DISPATCH(CausalSoftmaxBackward)(type, probabilities, d_probabilities, scale, matrices, size);
}
void add(Type type, const void* a, const void* b, void* y, Index count) {
  HWY_DYNAMIC_DISPATCH(Add)(type, a, b, y, count);
}
void add_column_sums(Type type, const void* x, float* sums, Index rows, Index columns) {
  HWY_DYNAMIC_DISPATCH(AddColumnSums)(type, x, sums, rows, columns);
}
void store_gradient(Type type, const float* sums, void* gradient, bool accumulate, Index count) {
  HWY_DYNAMIC_DISPATCH(StoreGradient)(type, sums, gradient, accumulate, count);
}
void dropout_add(Type type, const void* x, const void* residual, void* y, float rate, std::uint64_t key,
                 std::uint64_t stream, Index first, Index count) {
  if (rate > 0)
    HWY_DYNAMIC_DISPATCH(DropoutAdd)(type, x, residual, y, rate, key, stream, first, count);
  else if (residual != nullptr)
    add(type, x, residual, y, count);
  else if (x != y)
    convert(type, x, type, y, count);
}
void row_maxima(Type type, const void* x, float* maxima, Index rows, Index columns) {
  HWY_DYNAMIC_DISPATCH(RowMaxima)(type, x, maxima, rows, columns);
}
void row_exponential_sums(Type type, const void* x, const float* maxima, float* sums, Index rows,
                          Index columns) {
  HWY_DYNAMIC_DISPATCH(RowExponentialSums)(type, x, maxima, sums, rows, columns);
}
void softmax_gradient(Type type, void* logits, const float* maxima, const float* sums, const Index* targets,
                      float scale, Index rows, Index columns) {
  HWY_DYNAMIC_DISPATCH(SoftmaxGradient)(type, logits, maxima, sums, targets, scale, rows, columns);
}
double sum_of_squares(Type type, const void* x, Index count) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(type, x, count);
}
void adamw(Type type, const AdamW& how, const void* gradient, float* weights, float* m, float* v,
           Index count) {
  HWY_DYNAMIC_DISPATCH(AdamWStep)(type, how, gradient, weights, m, v, count);
}

}  // namespace trainer
#endif
