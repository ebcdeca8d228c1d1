// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace tutti {

/// memcpy without a call for up to 32 bytes: two moves that overlap.
inline void copy_few(void* destination, const void* source, std::size_t bytes) {
  if (bytes > 32) {
    std::memcpy(destination, source, bytes);
    return;
  }
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(source);
  auto twice = [&]<std::size_t kSize>(std::integral_constant<std::size_t, kSize>) {
    std::array<std::byte, kSize> head;
    std::array<std::byte, kSize> tail;
    std::memcpy(head.data(), from, kSize);
    std::memcpy(tail.data(), from + bytes - kSize, kSize);
    std::memcpy(to, head.data(), kSize);
    std::memcpy(to + bytes - kSize, tail.data(), kSize);
  };
  if (bytes >= 16)
    twice(std::integral_constant<std::size_t, 16>());
  else if (bytes >= 8)
    twice(std::integral_constant<std::size_t, 8>());
  else if (bytes >= 4)
    twice(std::integral_constant<std::size_t, 4>());
  else
    for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i];
}

}  // namespace tutti
