// SPDX-License-Identifier: BSD-3-Clause
//
// src/bootstrap: how ranks find each other and stay in touch: unique ids, authenticated connections, the
// directory of a rendezvous, and the control tree of a communicator. It moves small messages and descriptors,
// never the data of collectives, and knows nothing of lanes or schedules.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/error.hpp"

namespace tutti {

/// Builds a message. Numbers travel in the byte order of the machine: the handshake refuses another one.
class WireWriter {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> WireWriter& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  WireWriter& put(const std::string& text) {
    put(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Takes a message apart; throws ncclSystemError when it is shorter than it claims.
class WireReader {
 public:
  explicit WireReader(std::string bytes) : bytes_(std::move(bytes)) {}

  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> T get() {
    T value{};
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string get_text() {
    auto size = get<std::uint32_t>();
    return {take(size), size};
  }

 private:
  const char* take(std::size_t size);
  std::string bytes_;
  std::size_t at_ = 0;
};

}  // namespace tutti
