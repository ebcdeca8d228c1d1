// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/wire.hpp"

namespace tutti {

/// An IPv4 or IPv6 address with a port.
class Address {
 public:
  Address() = default;
  Address(const sockaddr* address, socklen_t size);
  /// Of this end, or of the other end, of a socket that has it.
  static Address of_socket(int socket);
  static Address of_peer(int socket);
  /// "127.0.0.1:4711", "[::1]:4711" or "host:4711" (looked up). Throws ncclInvalidArgument.
  static Address parse(const std::string& text);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  int family() const { return storage_.ss_family; }
  bool is_loopback() const;
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  std::string to_string() const;

  void write(WireWriter& writer) const;
  static Address read(WireReader& reader);

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

/// At most 255.
void write_addresses(WireWriter& writer, const std::vector<Address>& addresses);
std::vector<Address> read_addresses(WireReader& reader);
/// "10.0.0.1:4711, [fd00::1]:4711"
std::string to_string(const std::vector<Address>& addresses);

}  // namespace tutti
