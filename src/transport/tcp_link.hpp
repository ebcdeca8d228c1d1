// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <sys/uio.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "memory/host_memory.hpp"
#include "transport/lane.hpp"

namespace tutti {

/// A non-blocking stream socket, and what waits to be written to it.
class LinkSocket {
 public:
  explicit LinkSocket(FileDescriptor file) : file_(std::move(file)) {}
  int file() const { return file_.get(); }

  /// Bytes that stay where they are until they are written; `pieces_left` is then one less.
  void queue(const std::byte* data, std::size_t bytes, int& pieces_left);
  /// What lies in [data, data + bytes) lies at `to` now.
  void move_queued(const std::byte* data, std::size_t bytes, const std::byte* to);
  /// As much as the kernel takes. Whether anything was written; `error` is set if the peer is gone.
  bool write(std::optional<std::string>& error);
  bool is_written() const { return first_ == end_; }

 private:
  struct Piece {
    const std::byte* data;
    std::size_t left;
    int* pieces_left;
  };
  static constexpr std::size_t kMostPieces = 16;
  Piece& piece(std::size_t number) { return pieces_[number % kMostPieces]; }

  FileDescriptor file_;
  std::array<Piece, kMostPieces> pieces_{};
  std::size_t first_ = 0, end_ = 0;  // of the pieces that wait
};

/// The TCP connection of two ranks for one lane, in both directions: one socket, or several among which long
/// messages are striped. A message is a LinkHeader and its bytes.
///
/// Sending never waits: what the kernel does not take is kept in mind until write() is called again. Memory
/// that stays as it is (an offer) is sent from where it lies. Receiving puts the bytes where they are wanted
/// straight from the kernel, and takes small messages from it many at a time.
class TcpLink {
 public:
  /// Messages that may wait to be written; what verify takes for granted is less.
  static constexpr std::size_t kMostQueued = 4;
  static constexpr int kMostStripes = 16;

  explicit TcpLink(int peer) : peer_(peer) {}
  int peer() const { return peer_; }

  /// A socket, and what was read from it already.
  struct Opened {
    FileDescriptor socket;
    std::string received;
  };
  /// From now on it carries messages.
  void open(std::vector<Opened> sockets);
  bool is_open() const { return !sockets_.empty(); }
  /// What ended the connection, once it was tried in vain to use it.
  const std::optional<std::string>& lost() const { return lost_; }
  bool has_lost_since(std::chrono::steady_clock::duration time) const {
    return lost_ && std::chrono::steady_clock::now() - lost_at_ >= time;
  }

  // Sending.
  bool has_room();
  /// With room. Memory that does not stay is copied if not all of it is written at once.
  void send(const void* data, std::size_t bytes, bool stays, const CallHeader& header);
  /// Writes what waits, as far as that goes; whether anything was written.
  bool write();
  bool is_written() const { return queued_ == 0; }

  // Receiving: as an Inlet's.
  bool peek(ArrivedMessage& message, std::size_t expected, void* wanted);
  bool has_message() const { return arrived_; }
  void release();

 private:
  struct LinkHeader {
    std::uint64_t bytes = 0;
    CallHeader call;
  };
  struct Outgoing {
    LinkHeader header;
    std::vector<std::byte> copy;
    int pieces_left = 0;
  };
  struct Stripe {
    std::size_t offset = 0, bytes = 0;
  };
  /// Messages up to this length are read through `staging_`.
  static constexpr std::size_t kStaging = 8192;
  static constexpr std::size_t kMostStaged = 2048;
  /// Messages up to this length are sent from a copy of header and bytes together.
  static constexpr std::size_t kMostJoined = 1024;

  Stripe stripe(std::size_t bytes, std::size_t index) const;
  std::size_t stripes_of(std::size_t bytes) const;
  void send_joined(Outgoing& message, const std::byte* from);
  bool receive(std::size_t expected, std::byte* wanted);
  bool receive_staged(std::size_t expected);
  bool receive_placed(std::size_t expected, std::byte* wanted);
  bool read_first_stripe(std::size_t expected);
  bool read_other_stripes();
  bool fill_staging();
  std::size_t take_staged(void* to, std::size_t most);
  std::ptrdiff_t read(int file, iovec* parts, int count);
  void lose(const std::string& reason);

  int peer_;
  std::vector<LinkSocket> sockets_;
  std::vector<std::string> early_;  // by socket, but for the first: what was read when it was opened
  std::optional<std::string> lost_;
  std::chrono::steady_clock::time_point lost_at_;

  std::array<Outgoing, kMostQueued> outgoing_;  // a ring
  std::size_t first_queued_ = 0, queued_ = 0;

  LinkHeader incoming_;
  std::size_t header_got_ = 0;    // bytes of it
  std::vector<std::size_t> got_;  // of each stripe
  std::byte* place_ = nullptr;    // of the message's bytes
  bool arrived_ = false;
  std::size_t arrived_staged_ = 0;  // bytes of staging_ to be freed with it
  std::vector<std::byte> buffer_;   // for messages that are wanted nowhere
  std::vector<std::byte> staging_;
  std::size_t staged_begin_ = 0, staged_end_ = 0;
};

}  // namespace tutti
