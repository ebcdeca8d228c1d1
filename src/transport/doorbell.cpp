// SPDX-License-Identifier: BSD-3-Clause
#include "transport/doorbell.hpp"

#include <linux/futex.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace tutti {
namespace {

timespec to_timespec(std::chrono::milliseconds duration) {
  return {.tv_sec = static_cast<time_t>(duration.count() / 1000),
          .tv_nsec = static_cast<long>(duration.count() % 1000 * 1'000'000)};
}

timespec from_now(std::chrono::milliseconds duration) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  timespec more = to_timespec(duration);
  now.tv_sec += more.tv_sec;
  now.tv_nsec += more.tv_nsec;
  if (now.tv_nsec >= 1'000'000'000) {
    now.tv_nsec -= 1'000'000'000;
    ++now.tv_sec;
  }
  return now;
}

sockaddr_un address_of(std::uint32_t socket, socklen_t& size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::array<char, 16> digits{};
  int length = std::snprintf(digits.data(), digits.size(), "%05x", socket - 1);
  std::memcpy(address.sun_path + 1, digits.data(), static_cast<std::size_t>(length));
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  return address;
}

/// What a thread sleeps on when it waits for descriptors: any rank of the host can wake it by a datagram, and
/// needs nothing for that but a number. The kernel picks a name of five hexadecimal digits in the abstract
/// name space (unix(7), autobind). Anyone on the host could wake it for nothing; that is all.
class BellSocket {
 public:
  BellSocket() : file_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socklen_t size = sizeof address.sun_family;
    if (!file_ || bind(file_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0)
      fail_errno("a Unix socket to be woken by");
    size = sizeof address;
    getsockname(file_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    std::string name(address.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
    number_ = static_cast<std::uint32_t>(std::stoul(name, nullptr, 16)) + 1;
  }
  static BellSocket& of_this_thread() {
    thread_local BellSocket socket;
    return socket;
  }
  static void ring(std::uint32_t number) {
    static const FileDescriptor kSender(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    socklen_t size = 0;
    sockaddr_un address = address_of(number, size);
    char byte = 0;
    // A full socket has been rung already; one that is gone belonged to a thread that is.
    sendto(kSender.get(), &byte, 1, MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address), size);
  }
  void drain() {
    char byte = 0;
    while (recv(file_.get(), &byte, 1, 0) > 0) {
    }
  }
  int file() const { return file_.get(); }
  std::uint32_t number() const { return number_; }  ///< not 0

 private:
  FileDescriptor file_;
  std::uint32_t number_ = 0;
};

}  // namespace

void Doorbell::rouse(std::uint32_t kind) const {
  bell_->rings.fetch_add(1, std::memory_order_release);
  if (kind == kOnSocket)
    BellSocket::ring(bell_->socket.load(std::memory_order_relaxed));
  else
    syscall(SYS_futex, &bell_->rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::wake() const {
  rouse(kOnWord);
  if (auto socket = bell_->socket.load(); socket != 0) BellSocket::ring(socket);
}

Sleep::Sleep(std::span<const Doorbell> bells, std::span<const int> files)
    : bells_(bells.first(std::min(bells.size(), kMost))),
      files_(files),
      all_covered_(bells.size() <= kMost || !files.empty()) {
  if (!files_.empty()) {
    bells_ = bells;
    for (const Doorbell& bell : bells_)
      bell.bell_->socket.store(BellSocket::of_this_thread().number(), std::memory_order_relaxed);
  }
  for (std::size_t i = 0; files_.empty() && i < bells_.size(); ++i)
    rings_[i] = bells_[i].bell_->rings.load(std::memory_order_acquire);
  // Release: who reads that a socket is to be rung must find its number.
  for (const Doorbell& bell : bells_)
    bell.bell_->sleeping.store(files_.empty() ? kOnWord : kOnSocket, std::memory_order_release);
  bool pays =
      std::any_of(bells_.begin(), bells_.end(), [](const Doorbell& bell) { return bell.sleeper_pays_; });
  if (pays)
    heavy_fence_across_processes();
  else
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

Sleep::~Sleep() {
  for (const Doorbell& bell : bells_) bell.bell_->sleeping.store(kAwake, std::memory_order_relaxed);
}

void Sleep::wait_for_files(std::chrono::milliseconds limit) {
  std::vector<pollfd> waiting{{BellSocket::of_this_thread().file(), POLLIN, 0}};
  for (int file : files_) waiting.push_back({file, POLLIN, 0});
  poll(waiting.data(), waiting.size(), static_cast<int>(limit.count()));
  if (waiting[0].revents != 0) BellSocket::of_this_thread().drain();
}

void Sleep::wait(std::chrono::milliseconds limit) {
  if (!files_.empty()) return wait_for_files(limit);
  if (bells_.size() == 1) {
    timespec relative = to_timespec(limit);
    syscall(SYS_futex, &bells_[0].bell_->rings, FUTEX_WAIT, rings_[0], &relative, nullptr, 0);
    return;
  }
#ifdef SYS_futex_waitv
  std::array<futex_waitv, kMost> waiters{};
  for (std::size_t i = 0; i < bells_.size(); ++i) {
    waiters[i].val = rings_[i];
    waiters[i].uaddr = reinterpret_cast<std::uintptr_t>(&bells_[i].bell_->rings);
    waiters[i].flags = FUTEX_32;
  }
  timespec absolute = from_now(all_covered_ ? limit : std::min(limit, std::chrono::milliseconds(1)));
  if (syscall(SYS_futex_waitv, waiters.data(), bells_.size(), 0, &absolute, CLOCK_MONOTONIC) >= 0 ||
      errno != ENOSYS)
    return;
#endif
  // Before Linux 5.16 a thread can sleep on one word only.
  timespec nap{.tv_sec = 0, .tv_nsec = 100'000};
  nanosleep(&nap, nullptr);
}

}  // namespace tutti
