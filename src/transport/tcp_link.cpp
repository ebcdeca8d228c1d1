// SPDX-License-Identifier: BSD-3-Clause
#include "transport/tcp_link.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace tutti {
namespace {

// Shorter messages are quicker on one socket.
constexpr std::size_t kLeastStriped = 64 << 10;

}  // namespace

void LinkSocket::queue(const std::byte* data, std::size_t bytes, int& pieces_left) {
  if (bytes == 0) return;
  if (end_ - first_ == kMostPieces) fail(ncclInternalError, "too many messages wait for a socket");
  piece(end_++) = {data, bytes, &pieces_left};
  ++pieces_left;
}

void LinkSocket::move_queued(const std::byte* data, std::size_t bytes, const std::byte* to) {
  for (std::size_t i = first_; i != end_; ++i)
    if (Piece& moved = piece(i); moved.data >= data && moved.data < data + bytes)
      moved.data = to + (moved.data - data);
}

bool LinkSocket::write(std::optional<std::string>& error) {
  bool moved = false;
  while (first_ != end_) {
    std::array<iovec, kMostPieces> parts;
    std::size_t count = 0;
    for (std::size_t i = first_; i != end_; ++i)
      parts[count++] = {const_cast<std::byte*>(piece(i).data), piece(i).left};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
    ssize_t sent = count == 1 ? ::send(file_.get(), parts[0].iov_base, parts[0].iov_len, kFlags)
                              : sendmsg(file_.get(), &message, kFlags);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) break;
    if (sent < 0) {
      error = errno_text(errno);
      break;
    }
    moved = true;
    bool all = true;
    for (auto left = static_cast<std::size_t>(sent); first_ != end_; ++first_) {
      Piece& next = piece(first_);
      std::size_t of_this = std::min(left, next.left);
      left -= of_this;
      next.left -= of_this;
      next.data += of_this;
      all = next.left == 0;
      if (!all) break;
      --*next.pieces_left;
    }
    if (!all) break;  // the kernel took less than there is: it has no more room
  }
  return moved;
}

void TcpLink::open(std::vector<Opened> sockets) {
  for (Opened& opened : sockets) {
    sockets_.emplace_back(std::move(opened.socket));
    early_.push_back(std::move(opened.received));
  }
  got_.assign(sockets_.size(), 0);
  const std::string received = std::exchange(early_[0], {});
  staging_.resize(std::max(kStaging, received.size()));
  std::memcpy(staging_.data(), received.data(), received.size());
  staged_end_ = received.size();
}

void TcpLink::lose(const std::string& reason) {
  if (lost_) return;
  lost_ = reason;
  lost_at_ = std::chrono::steady_clock::now();
}

std::size_t TcpLink::stripes_of(std::size_t bytes) const {
  return bytes < kLeastStriped ? 1 : sockets_.size();
}

// In whole cache lines, but for the last.
TcpLink::Stripe TcpLink::stripe(std::size_t bytes, std::size_t index) const {
  std::size_t stripes = stripes_of(bytes);
  auto begin = [&](std::size_t i) { return i == stripes ? bytes : bytes / stripes * i / 64 * 64; };
  return {begin(index), begin(index + 1) - begin(index)};
}

bool TcpLink::has_room() {
  if (!is_open() || lost_) return false;
  if (queued_ == kMostQueued) write();
  return queued_ < kMostQueued;
}

void TcpLink::send(const void* data, std::size_t bytes, bool stays, const CallHeader& header) {
  const auto* from = static_cast<const std::byte*>(data);
  Outgoing& message = outgoing_[(first_queued_ + queued_++) % kMostQueued];
  message.header = {bytes, header};
  if (bytes <= kMostJoined) return send_joined(message, from);
  sockets_[0].queue(reinterpret_cast<const std::byte*>(&message.header), sizeof message.header,
                    message.pieces_left);
  for (std::size_t i = 0; i < stripes_of(bytes); ++i) {
    Stripe part = stripe(bytes, i);
    sockets_[i].queue(from + part.offset, part.bytes, message.pieces_left);
  }
  write();
  if (message.pieces_left == 0 || stays) return;
  message.copy.assign(from, from + bytes);
  for (LinkSocket& socket : sockets_) socket.move_queued(from, bytes, message.copy.data());
}

// A short message is copied behind its header: one piece for the kernel, and nothing to keep in mind.
void TcpLink::send_joined(Outgoing& message, const std::byte* from) {
  std::size_t bytes = message.header.bytes;
  message.copy.resize(sizeof message.header + kMostJoined);
  std::memcpy(message.copy.data(), &message.header, sizeof message.header);
  std::memcpy(message.copy.data() + sizeof message.header, from, bytes);
  sockets_[0].queue(message.copy.data(), sizeof message.header + bytes, message.pieces_left);
  write();
}

bool TcpLink::write() {
  bool moved = false;
  std::optional<std::string> error;
  for (LinkSocket& socket : sockets_) moved = socket.write(error) || moved;
  if (error) lose(*error);
  while (queued_ != 0 && outgoing_[first_queued_].pieces_left == 0) {
    first_queued_ = (first_queued_ + 1) % kMostQueued;
    --queued_;
  }
  return moved;
}

bool TcpLink::peek(ArrivedMessage& message, std::size_t expected, void* wanted) {
  if (!arrived_ && !receive(expected, static_cast<std::byte*>(wanted))) return false;
  arrived_ = true;
  message.data = place_;
  message.bytes = incoming_.bytes;
  message.header = incoming_.call;
  return true;
}

void TcpLink::release() {
  arrived_ = false;
  header_got_ = 0;
  staged_begin_ += std::exchange(arrived_staged_, 0);
  std::ranges::fill(got_, 0);
}

bool TcpLink::receive(std::size_t expected, std::byte* wanted) {
  if (!is_open() || lost_) return false;
  return expected <= kMostStaged ? receive_staged(expected) : receive_placed(expected, wanted);
}

// A message that is short, or will turn out not to be: from staging, where more of them may wait already.
bool TcpLink::receive_staged(std::size_t expected) {
  for (;;) {
    std::size_t staged = staged_end_ - staged_begin_;
    if (staged >= sizeof incoming_) {
      std::memcpy(&incoming_, staging_.data() + staged_begin_, sizeof incoming_);
      place_ = staging_.data() + staged_begin_ + sizeof incoming_;
      if (incoming_.bytes != expected) return true;  // the receiver will not look at it
      arrived_staged_ = sizeof incoming_ + expected;
      if (staged >= arrived_staged_) return true;
      arrived_staged_ = 0;
    }
    if (!fill_staging()) return false;
  }
}

bool TcpLink::fill_staging() {
  if (staged_begin_ != 0) {
    std::memmove(staging_.data(), staging_.data() + staged_begin_, staged_end_ - staged_begin_);
    staged_end_ -= std::exchange(staged_begin_, 0);
  }
  iovec room{staging_.data() + staged_end_, staging_.size() - staged_end_};
  std::ptrdiff_t got = read(sockets_[0].file(), &room, 1);
  if (got > 0) staged_end_ += static_cast<std::size_t>(got);
  return got > 0;
}

bool TcpLink::receive_placed(std::size_t expected, std::byte* wanted) {
  if (header_got_ == 0 && wanted == nullptr && buffer_.size() < expected) buffer_.resize(expected);
  place_ = wanted != nullptr ? wanted : buffer_.data();
  if (!read_first_stripe(expected)) return false;
  return incoming_.bytes != expected || read_other_stripes();
}

std::size_t TcpLink::take_staged(void* to, std::size_t most) {
  std::size_t bytes = std::min(most, staged_end_ - staged_begin_);
  std::memcpy(to, staging_.data() + staged_begin_, bytes);
  staged_begin_ += bytes;
  return bytes;
}

// The header and the stripe behind it, in one call where they have arrived together. True when the header
// shows another length, or all of the stripe is there.
bool TcpLink::read_first_stripe(std::size_t expected) {
  auto* header = reinterpret_cast<std::byte*>(&incoming_);
  std::size_t bytes = stripe(expected, 0).bytes;
  for (;;) {
    header_got_ += take_staged(header + header_got_, sizeof incoming_ - header_got_);
    bool has_header = header_got_ == sizeof incoming_;
    if (has_header && incoming_.bytes != expected) return true;
    if (has_header) got_[0] += take_staged(place_ + got_[0], bytes - got_[0]);
    if (has_header && got_[0] == bytes) return true;
    std::array<iovec, 2> parts{iovec{header + header_got_, sizeof incoming_ - header_got_},
                               iovec{place_ + got_[0], bytes - got_[0]}};
    std::ptrdiff_t got =
        has_header ? read(sockets_[0].file(), &parts[1], 1) : read(sockets_[0].file(), parts.data(), 2);
    if (got <= 0) return false;
    std::size_t of_header = std::min(static_cast<std::size_t>(got), sizeof incoming_ - header_got_);
    header_got_ += of_header;
    got_[0] += static_cast<std::size_t>(got) - of_header;
  }
}

bool TcpLink::read_other_stripes() {
  bool all = true;
  for (std::size_t i = 1; i < stripes_of(incoming_.bytes); ++i) {
    Stripe part = stripe(incoming_.bytes, i);
    if (std::size_t early = std::min(early_[i].size(), part.bytes - got_[i]); early != 0) {
      std::memcpy(place_ + part.offset + got_[i], early_[i].data(), early);
      early_[i].erase(0, early);
      got_[i] += early;
    }
    while (got_[i] < part.bytes) {
      iovec rest{place_ + part.offset + got_[i], part.bytes - got_[i]};
      std::ptrdiff_t got = read(sockets_[i].file(), &rest, 1);
      if (got <= 0) break;
      got_[i] += static_cast<std::size_t>(got);
    }
    all = all && got_[i] == part.bytes;
  }
  return all;
}

std::ptrdiff_t TcpLink::read(int file, iovec* parts, int count) {
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = static_cast<std::size_t>(count);
  for (;;) {
    // One piece is cheaper to name without a msghdr, which the kernel would have to fetch.
    ssize_t got = count == 1 ? recv(file, parts->iov_base, parts->iov_len, MSG_DONTWAIT)
                             : recvmsg(file, &message, MSG_DONTWAIT);
    if (got > 0) return got;
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) lose("the other side closed the connection");
    if (got < 0 && errno != EAGAIN) lose(errno_text(errno));
    return -1;
  }
}

}  // namespace tutti
