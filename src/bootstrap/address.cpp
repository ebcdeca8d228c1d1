// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/address.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <charconv>
#include <memory>

namespace tutti {

Address::Address(const sockaddr* address, socklen_t size) : size_(size) {
  std::memcpy(&storage_, address, size);
}

Address Address::of_socket(int socket) {
  Address address;
  address.size_ = sizeof address.storage_;
  getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage_), &address.size_);
  return address;
}

Address Address::of_peer(int socket) {
  Address address;
  address.size_ = sizeof address.storage_;
  getpeername(socket, reinterpret_cast<sockaddr*>(&address.storage_), &address.size_);
  return address;
}

Address Address::parse(const std::string& text) {
  auto colon = text.rfind(':');
  if (colon == std::string::npos)
    fail(ncclInvalidArgument, "\"{}\" is not an address: expected host:port", text);
  std::string host = text.substr(0, colon), port = text.substr(colon + 1);
  unsigned number = 0;
  auto [end, error_code] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error_code != std::errc() || end != port.data() + port.size() || number < 1 || number > 65535)
    fail(ncclInvalidArgument, "\"{}\" is not an address: the port must be a number from 1 to 65535", text);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    fail(ncclInvalidArgument, "the address \"{}\" could not be resolved: {}", text, gai_strerror(error));
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  return {found->ai_addr, found->ai_addrlen};
}

bool Address::is_loopback() const {
  if (family() == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24 == 127;
}

std::uint16_t Address::port() const {
  return ntohs(family() == AF_INET ? reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port
                                   : reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
}

void Address::set_port(std::uint16_t port) {
  if (family() == AF_INET)
    reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
  else
    reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port);
}

std::string Address::to_string() const {
  std::array<char, NI_MAXHOST> host{};
  if (getnameinfo(get(), size_, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return family() == AF_INET6 ? fmt::format("[{}]:{}", host.data(), port())
                              : fmt::format("{}:{}", host.data(), port());
}

void Address::write(WireWriter& writer) const {
  writer.put(std::string(reinterpret_cast<const char*>(&storage_), size_));
}

void write_addresses(WireWriter& writer, const std::vector<Address>& addresses) {
  writer.put(static_cast<std::uint8_t>(addresses.size()));
  for (const Address& address : addresses) address.write(writer);
}

std::vector<Address> read_addresses(WireReader& reader) {
  std::vector<Address> addresses(reader.get<std::uint8_t>());
  for (Address& address : addresses) address = Address::read(reader);
  return addresses;
}

std::string to_string(const std::vector<Address>& addresses) {
  std::string text;
  for (const Address& address : addresses) text += (text.empty() ? "" : ", ") + address.to_string();
  return text;
}

Address Address::read(WireReader& reader) {
  std::string bytes = reader.get_text();
  Address address;
  if (bytes.size() > sizeof address.storage_) fail(ncclSystemError, "an address of {} bytes", bytes.size());
  std::memcpy(&address.storage_, bytes.data(), bytes.size());
  address.size_ = static_cast<socklen_t>(bytes.size());
  bool valid = (address.family() == AF_INET && bytes.size() == sizeof(sockaddr_in)) ||
               (address.family() == AF_INET6 && bytes.size() == sizeof(sockaddr_in6));
  if (!valid) fail(ncclSystemError, "a peer sent an address that is none");
  return address;
}

}  // namespace tutti
