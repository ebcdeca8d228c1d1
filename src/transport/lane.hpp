// SPDX-License-Identifier: BSD-3-Clause
//
// src/transport: lanes, the one-way ordered paths of messages from one rank to another, and how they are made
// for a pair of ranks. A transport knows bytes and ranks; it knows no collective, no algorithm, no element
// type.
//
// The ends of lanes: an Inlet takes from one rank, an Outlet gives to one rank or, writing once, to several.
// No call blocks. All calls for one communicator's lanes come from one thread at a time.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

/// What every message says about the call that it belongs to; the receiver compares it with its own call. The
/// transport carries it and does not look inside.
struct CallHeader {
  std::uint64_t call = 0;   ///< operation number, collective, types ... (communicator/signature.hpp)
  std::uint64_t count = 0;  ///< elements of the call
  bool operator==(const CallHeader&) const = default;
};

/// A message that has arrived, readable where it is until it is released.
struct ArrivedMessage {
  const void* data = nullptr;  ///< null if it is placed or must be fetched
  void* landing = nullptr;     ///< where the sender would have the answer, if it said so; `bytes` long
  bool placed = false;         ///< the sender stored it in the landing that it was given
  std::size_t bytes = 0;       ///< or what is left of them to be fetched
  CallHeader header;
  /// It lies in the sender's process, and may be longer than a slice.
  bool must_be_fetched() const { return data == nullptr && !placed; }
};

/// No message that travels by value, behind the words that announce it, is longer than this.
inline constexpr std::size_t kInlineBytes = 512;

class Inlet {
 public:
  virtual ~Inlet() = default;
  /// The oldest message that has arrived and is not released, or false. May be called again before release,
  /// with the same wish: `expected` bytes, and where they are wanted (then `data` may be that place), or null
  /// if anywhere will do. A message of other length is shown as soon as that is known, its data perhaps not
  /// there yet. Throws when the source is lost.
  virtual bool peek(ArrivedMessage& message, std::size_t expected, void* wanted) = 0;
  /// Whether there is one; peek() without a look at it.
  virtual bool has_message() const = 0;
  /// Copies the next bytes, `most` if there are so many, of the peeked message, which must be fetched; gives
  /// how many. Throws when the sender's process lets nobody read.
  virtual std::size_t fetch(void* destination, std::size_t most) = 0;
  /// Frees the peeked message, unless some of it is yet to be fetched.
  virtual void release() = 0;
  virtual int source() const = 0;
};

/// What is sent is under way when has_settled() says so: until then somebody must go on calling
/// Lanes::progress().
///
/// `landing`: memory of the sender's to which the receivers may store as many bytes as the message has, until
/// they have answered it; or null. It is passed on to those who can reach it.
class Outlet {
 public:
  virtual ~Outlet() = default;
  /// Whether one more message can be sent to all receivers now.
  virtual bool has_room() = 0;
  /// Whether a slot is free, too, which messages need that are neither inlined nor offered.
  virtual bool has_slot() = 0;
  /// With both: where to put the bytes of the next message (at most a slice; 64-byte aligned).
  virtual std::byte* slot() = 0;
  /// Sends the slot's first `bytes`.
  virtual void commit(std::size_t bytes, void* landing, const CallHeader& header) = 0;
  /// Up to how many bytes it is better to send by value than through a slot; at most kInlineBytes.
  virtual std::size_t most_inline() const = 0;
  /// Sends up to that many bytes by value, or any number over a lane that copies as it sends.
  virtual void send_inline(const void* data, std::size_t bytes, const CallHeader& header) = 0;
  /// Whether all receivers could read [data, data + bytes) in place.
  virtual bool can_reach(const void* data, std::size_t bytes) const = 0;
  /// Sends memory that stays as it is until the receivers have read it (has_settled). They fetch what they
  /// cannot reach.
  virtual void offer(const void* data, std::size_t bytes, void* landing, const CallHeader& header) = 0;
  /// Sends word that the bytes are in each receiver's landing.
  virtual void send_placed(std::size_t bytes, const CallHeader& header) = 0;
  /// Whether everything offered has been read, and everything else has left this process.
  virtual bool has_settled() = 0;
  /// Whether what was sent may still have to leave this process, so that an operation must not end before
  /// has_settled() even if it has offered nothing.
  virtual bool must_settle() const = 0;
  virtual std::span<const int> destinations() const = 0;
};

}  // namespace tutti
