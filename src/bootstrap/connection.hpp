// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "bootstrap/service.hpp"

namespace tutti {

/// What control messages are about; the first byte of each.
enum class MessageType : std::uint8_t {
  register_rank,  ///< rank -> directory: I am here
  look_up,        ///< rank -> directory: where is that rank?
  found,          ///< directory -> rank: there
  refused,        ///< directory -> rank: the communicator cannot be made
  joined,         ///< rank -> directory: I have all my neighbours
  attach,         ///< child -> parent: I am your child
  attached,       ///< parent -> child: yes
  gather,         ///< child -> parent: contributions of my subtree
  table,          ///< parent -> child: all contributions
  notice,         ///< to all: a rank has failed or left
  alive,          ///< to neighbours, now and then
  link,           ///< rank -> rank: this connection is to carry data between us
  linked,         ///< the answer; what follows are no messages of this kind any more
};

/// A TCP connection whose two sides have proved to each other that they know a realm's secret before any
/// message is believed: each sends a nonce and gets it back under HMAC. Everything here is [service].
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Handlers {
    std::function<void()> opened;
    std::function<void(MessageType, WireReader&)> message;
    std::function<void(const std::string& reason)> closed;  ///< once; not after close()
  };

  /// The addresses are of one process: they are tried in turn, those in a network of ours first, until one
  /// answers; `closed` is called when none has. One that hangs up, as a process that is flooded by strangers
  /// may, is tried some more times.
  static std::shared_ptr<Connection> connect(const std::vector<Address>& addresses, const Secret& secret,
                                             Handlers handlers);
  /// For a socket that a listener accepted: whom it is for is known after the handshake
  /// (Realm::first_message).
  static std::shared_ptr<Connection> accept(FileDescriptor socket);

  Connection(FileDescriptor socket, std::string peer) : socket_(std::move(socket)), peer_(std::move(peer)) {}

  void set_handlers(Handlers handlers) { handlers_ = std::move(handlers); }
  void send(MessageType type, const WireWriter& message);
  /// Sends what is queued as far as the socket takes it, then closes; no handler is called any more.
  void close();
  /// Gives the socket away, with what has arrived on it and was not taken for a message; no handler is called
  /// any more. For when both sides have agreed that what follows is no message.
  std::pair<FileDescriptor, std::string> detach();
  const std::string& peer() const { return peer_; }
  /// Accepted, and has not proved yet that it knows a secret.
  bool is_stranger() const {
    return state_ == State::server_waits_hello || state_ == State::server_waits_proof;
  }

 private:
  enum class State { connecting, client_waits_hello, server_waits_hello, server_waits_proof, open, closed };

  bool try_next_address();
  bool try_again_later();
  void note_failure(const std::string& reason);
  void watch(State state);
  void forget();
  void on_events(std::uint32_t events);
  void send_client_hello();
  void read_available();
  bool consume();
  bool on_server_hello(const std::string& bytes);
  bool on_client_hello(const std::string& bytes);
  bool on_client_proof(const std::string& bytes);
  void on_message(const std::string& bytes);
  void write_pending();
  void fail_with(const std::string& reason);
  void become_open();

  FileDescriptor socket_;
  std::string peer_;
  std::vector<Address> addresses_;
  std::size_t next_address_ = 0;
  std::string failures_;  // of those that were tried
  int attempt_ = 0;
  int rounds_ = 0;  // through all addresses
  bool hung_up_on_ = false;
  Handlers handlers_;
  State state_ = State::closed;
  std::shared_ptr<Realm> realm_;  // of an accepted connection, from the hello on
  Secret secret_;
  Nonce client_nonce_{}, server_nonce_{};
  std::string received_, pending_;
  bool first_ = true;
};

}  // namespace tutti
