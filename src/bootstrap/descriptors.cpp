// SPDX-License-Identifier: BSD-3-Clause
//
// Handing descriptors of shared memory to other processes of this host: a Unix socket in the abstract name
// space (nothing in the file system), SCM_RIGHTS, the peer's uid checked, and a challenge that only ranks can
// answer.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "bootstrap/service.hpp"

namespace tutti {
namespace {

struct Request {
  std::array<unsigned char, 16> realm;
  std::uint64_t window;
  Proof proof;  // of the server's nonce and the window
};

constexpr std::string_view kRole = "descriptor";
constexpr int kSeconds = 10;

std::string challenge(const Nonce& nonce, std::uint64_t window) {
  return std::string(reinterpret_cast<const char*>(nonce.data()), nonce.size()) +
         std::string(reinterpret_cast<const char*>(&window), sizeof window);
}

struct UnixAddress {
  sockaddr_un address{};
  socklen_t size = 0;
  explicit UnixAddress(const std::string& name) {
    address.sun_family = AF_UNIX;
    std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, name.data(), length);  // path[0] = 0: abstract
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

void send_descriptor(int socket, int descriptor) {
  char byte = descriptor >= 0 ? '1' : '0';
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  sendmsg(socket, &message, MSG_NOSIGNAL);
}

void answer(Service& service, int socket, const Nonce& nonce) {
  Request request{};
  if (recv(socket, &request, sizeof request, 0) != sizeof request) return;
  auto realm = service.find_realm({request.realm});
  if (!realm || !is_proof(request.proof, realm->secret(), kRole, challenge(nonce, request.window))) return;
  if (request.window == 0) {
    send_descriptor(socket, realm->shared_descriptor());
  } else {
    FileDescriptor file = WindowTable::instance().duplicate(request.window);
    send_descriptor(socket, file.get());
  }
}

}  // namespace

void Service::open_descriptor_socket() {
  Nonce nonce = random_nonce();
  descriptor_socket_ = fmt::format("tutti-{}-", getpid());
  for (std::size_t i = 0; i < 16; ++i) descriptor_socket_ += fmt::format("{:02x}", nonce[i]);
  unix_listener_ = FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  UnixAddress address(descriptor_socket_);
  if (!unix_listener_ || bind(unix_listener_.get(), address.get(), address.size) != 0 ||
      listen(unix_listener_.get(), 1024) != 0)
    fail_errno("a Unix socket to hand out shared memory");
  watch(unix_listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_descriptor_request(); });
}

void Service::accept_descriptor_request() {
  auto client = std::make_shared<FileDescriptor>(
      accept4(unix_listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!*client) return;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(client->get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) return;
  Nonce nonce = random_nonce();
  if (send(client->get(), nonce.data(), nonce.size(), MSG_NOSIGNAL) < 0) return;
  // The handler owns the socket: answering, hanging up and the time limit all end in unwatch.
  watch(client->get(), EPOLLIN, [this, client, nonce](std::uint32_t) {
    answer(*this, client->get(), nonce);
    unwatch(client->get());
  });
  at(std::chrono::steady_clock::now() + std::chrono::seconds(kSeconds), [this, weak = std::weak_ptr(client)] {
    if (auto late = weak.lock()) unwatch(late->get());
  });
}

bool reaches_descriptor_socket(const std::string& socket_name) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  UnixAddress address(socket_name);
  return socket && connect(socket.get(), address.get(), address.size) == 0;
}

FileDescriptor fetch_descriptor(const std::string& socket_name, const Secret& secret, std::uint64_t window) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) fail_errno("a Unix socket to fetch shared memory");
  timeval limit{.tv_sec = kSeconds, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  UnixAddress address(socket_name);
  if (connect(socket.get(), address.get(), address.size) != 0)
    fail_errno("connecting to the process that shares memory (" + socket_name + ")");
  Nonce nonce;
  if (recv(socket.get(), nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    fail(ncclSystemError, "the process that shares memory did not answer: does it run as another user?");
  Request request{RealmName::of(secret).bytes, window, prove(secret, kRole, challenge(nonce, window))};
  if (send(socket.get(), &request, sizeof request, MSG_NOSIGNAL) < 0) fail_errno("asking for shared memory");
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC) <= 0)
    fail(ncclSystemError, "the process that shares memory refused to hand it out");
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS)
    fail(ncclSystemError, "the memory that was asked for is no longer there (freed while in use?)");
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return FileDescriptor(descriptor);
}

}  // namespace tutti
