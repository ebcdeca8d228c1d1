// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/connection.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.hpp"
#include "bootstrap/congestion.hpp"
#include "tutti/tutti.h"

namespace tutti {
namespace {

constexpr char kMagic[9] = "TUTTICTL";
// Also tells machines of another byte order apart.
constexpr std::uint32_t kProtocol = 0x00000100;
constexpr std::size_t kVersionBytes = 20;
constexpr std::size_t kClientHello = 8 + 4 + kVersionBytes + 16 + 32;
constexpr std::size_t kServerHello = 8 + 4 + kVersionBytes + 32 + 32;
constexpr std::size_t kClientProof = 32;
constexpr std::size_t kLongestMessage = std::size_t{64} << 20;
constexpr std::chrono::seconds kHandshakeLimit{10};
constexpr std::chrono::seconds kAttemptLimit{3};  // where there are other addresses to be tried
constexpr int kMostRounds = 6;
constexpr std::chrono::milliseconds kPause{20};

// A table of all ranks passes once or twice: what it needed is not kept by every connection.
void forget_empty(std::string& buffer) {
  constexpr std::size_t kKeptBytes = 4096;
  if (buffer.empty() && buffer.capacity() > kKeptBytes) std::string().swap(buffer);
}

template <std::size_t N>
std::string text_of(const std::array<unsigned char, N>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), N};
}

template <std::size_t N>
void copy_from(std::array<unsigned char, N>& to, const std::string& bytes, std::size_t at) {
  std::memcpy(to.data(), bytes.data() + at, N);
}

std::string greeting() {
  std::string version =
      fmt::format("{}.{}.{}", TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
  version.resize(kVersionBytes, '\0');
  std::uint32_t protocol = kProtocol;
  return std::string(kMagic, 8) + std::string(reinterpret_cast<const char*>(&protocol), 4) + version;
}

bool has_magic(const std::string& bytes) { return bytes.compare(0, 8, kMagic, 8) == 0; }
bool same_protocol(const std::string& bytes) { return bytes.compare(8, 4, greeting(), 8, 4) == 0; }
std::string version_in(const std::string& bytes) { return bytes.substr(12, kVersionBytes).c_str(); }

}  // namespace

std::shared_ptr<Connection> Connection::connect(const std::vector<Address>& addresses, const Secret& secret,
                                                Handlers handlers) {
  auto connection = std::make_shared<Connection>(FileDescriptor(), "");
  connection->addresses_ = nearest_first(addresses, Service::instance().interfaces());
  connection->secret_ = secret;
  connection->handlers_ = std::move(handlers);
  Service::instance().keep(connection);
  if (!connection->try_next_address()) {
    connection->forget();
    fail(ncclSystemError, "connecting: {}", connection->failures_);
  }
  return connection;
}

// False when there is none left.
bool Connection::try_next_address() {
  while (next_address_ < addresses_.size()) {
    const Address& address = addresses_[next_address_++];
    peer_ = address.to_string();
    FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (socket) choose_congestion_control(socket.get(), address);
    if (socket && (::connect(socket.get(), address.get(), address.size()) == 0 || errno == EINPROGRESS)) {
      socket_ = std::move(socket);
      watch(State::connecting);
      return true;
    }
    note_failure(errno_text(errno));
  }
  return false;
}

bool Connection::try_again_later() {
  if (!hung_up_on_ || ++rounds_ == kMostRounds) return false;
  state_ = State::connecting;
  socket_ = FileDescriptor();
  failures_.clear();
  next_address_ = 0;
  hung_up_on_ = false;
  ++attempt_;  // the limit of the last one is void
  Service::instance().at(std::chrono::steady_clock::now() + kPause * rounds_, [self = weak_from_this()] {
    auto connection = self.lock();
    if (connection && connection->state_ == State::connecting && !connection->try_next_address())
      connection->fail_with("no address could be tried");
  });
  return true;
}

void Connection::note_failure(const std::string& reason) {
  failures_ += fmt::format("{}{}: {}", failures_.empty() ? "" : "; ", peer_, reason);
}

std::shared_ptr<Connection> Connection::accept(FileDescriptor socket) {
  auto connection = std::make_shared<Connection>(std::move(socket), "an accepted connection");
  Service::instance().keep(connection);
  connection->watch(State::server_waits_hello);
  return connection;
}

void Connection::watch(State state) {
  state_ = state;
  int on = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  Service& service = Service::instance();
  std::uint32_t events = state == State::connecting ? EPOLLOUT : EPOLLIN;
  service.watch(socket_.get(), events, [self = weak_from_this()](std::uint32_t happened) {
    if (auto connection = self.lock()) connection->on_events(happened);
  });
  // Other addresses may answer sooner.
  auto limit = next_address_ == addresses_.size() ? kHandshakeLimit : kAttemptLimit;
  service.at(std::chrono::steady_clock::now() + limit,
             [self = weak_from_this(), limit, attempt = ++attempt_] {
               auto connection = self.lock();
               if (connection && connection->attempt_ == attempt && connection->state_ != State::open &&
                   connection->state_ != State::closed)
                 connection->fail_with(fmt::format("no handshake within {} s", limit.count()));
             });
}

void Connection::on_events(std::uint32_t events) {
  auto keep_alive = shared_from_this();
  if (state_ == State::connecting) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return fail_with(errno_text(error));
    send_client_hello();
    return;
  }
  if ((events & EPOLLOUT) != 0) write_pending();
  if (state_ != State::closed && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read_available();
}

void Connection::send_client_hello() {
  state_ = State::client_waits_hello;
  client_nonce_ = random_nonce();
  pending_ = greeting() + text_of(RealmName::of(secret_).bytes) + text_of(client_nonce_);
  write_pending();
}

void Connection::read_available() {
  std::array<char, 65536> buffer;
  for (int attempt = attempt_; state_ != State::closed && attempt_ == attempt;) {  // not of another socket
    ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    hung_up_on_ = got == 0 || errno == ECONNRESET;
    if (got < 0) return fail_with(errno_text(errno));
    if (got == 0) return fail_with("the other side closed the connection");
    received_.append(buffer.data(), static_cast<std::size_t>(got));
    while (state_ != State::closed && attempt_ == attempt && consume()) {
    }
    forget_empty(received_);
  }
}

// Takes one complete handshake step or message off the front of what was received.
bool Connection::consume() {
  auto take = [this](std::size_t size) {
    std::string bytes = received_.substr(0, size);
    received_.erase(0, size);
    return bytes;
  };
  switch (state_) {
    case State::server_waits_hello:
      // A stranger is recognized by the first bytes, so that nothing else need be kept of it.
      if (!received_.empty() && received_.compare(0, std::min<std::size_t>(8, received_.size()), kMagic,
                                                  std::min<std::size_t>(8, received_.size())) != 0) {
        fail_with("not a control connection");
        return false;
      }
      return received_.size() >= kClientHello && on_client_hello(take(kClientHello));
    case State::server_waits_proof:
      return received_.size() >= kClientProof && on_client_proof(take(kClientProof));
    case State::client_waits_hello:
      return received_.size() >= kServerHello && on_server_hello(take(kServerHello));
    case State::open: {
      std::uint32_t size = 0;
      if (received_.size() < sizeof size) return false;
      std::memcpy(&size, received_.data(), sizeof size);
      if (size == 0 || size > kLongestMessage) {
        fail_with(fmt::format("a message of {} bytes", size));
        return false;
      }
      if (received_.size() < sizeof size + size) return false;
      take(sizeof size);
      on_message(take(size));
      return true;
    }
    default:
      return false;
  }
}

bool Connection::on_client_hello(const std::string& bytes) {
  RealmName name;
  copy_from(name.bytes, bytes, 12 + kVersionBytes);
  copy_from(client_nonce_, bytes, 12 + kVersionBytes + 16);
  server_nonce_ = random_nonce();
  std::string answer = greeting() + text_of(server_nonce_);
  if (!same_protocol(bytes)) {
    pending_ += answer + std::string(32, '\0');  // the client reads our version in it and gives up
    write_pending();
    fail_with("a client of version " + version_in(bytes));
    return false;
  }
  realm_ = Service::instance().find_realm(name);
  if (!realm_) {
    fail_with("a client with an id that is not known here");
    return false;
  }
  secret_ = realm_->secret();
  pending_ += answer + text_of(prove(secret_, "server", text_of(client_nonce_) + text_of(server_nonce_)));
  state_ = State::server_waits_proof;
  write_pending();
  return true;
}

bool Connection::on_server_hello(const std::string& bytes) {
  if (!has_magic(bytes) || !same_protocol(bytes)) {
    fail_with(has_magic(bytes) ? fmt::format("it runs version {} of the library, this rank runs {}.{}.{}",
                                             version_in(bytes), TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR,
                                             TUTTI_VERSION_PATCH)
                               : "this is no process of Tutti's");
    return false;
  }
  copy_from(server_nonce_, bytes, 12 + kVersionBytes);
  Proof proof;
  copy_from(proof, bytes, 12 + kVersionBytes + 32);
  std::string nonces = text_of(client_nonce_) + text_of(server_nonce_);
  if (!is_proof(proof, secret_, "server", nonces)) {
    fail_with("it does not know the secret of the id");
    return false;
  }
  pending_ += text_of(prove(secret_, "client", nonces));
  become_open();
  if (auto handler = handlers_.opened) handler();
  return true;
}

bool Connection::on_client_proof(const std::string& bytes) {
  Proof proof;
  copy_from(proof, bytes, 0);
  if (!is_proof(proof, secret_, "client", text_of(client_nonce_) + text_of(server_nonce_))) {
    log_warning("refused a control connection that does not know the secret");
    fail_with("wrong proof");
    return false;
  }
  become_open();
  return true;
}

void Connection::become_open() {
  state_ = State::open;
  write_pending();
}

void Connection::on_message(const std::string& bytes) {
  auto type = static_cast<MessageType>(bytes[0]);
  WireReader reader(bytes.substr(1));
  try {
    if (realm_ && std::exchange(first_, false))
      realm_->first_message(shared_from_this(), static_cast<std::uint8_t>(type), reader);
    else if (auto handler = handlers_.message)  // a copy: the handler may close the connection
      handler(type, reader);
  } catch (const Error& error) {
    fail_with(error.what());
  }
}

void Connection::send(MessageType type, const WireWriter& message) {
  if (state_ == State::closed) return;
  auto size = static_cast<std::uint32_t>(message.bytes().size() + 1);
  pending_.append(reinterpret_cast<const char*>(&size), sizeof size);
  pending_ += static_cast<char>(type);
  pending_ += message.bytes();
  if (state_ == State::open) write_pending();
}

void Connection::write_pending() {
  while (!pending_.empty()) {
    ssize_t sent = ::send(socket_.get(), pending_.data(), pending_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    // What ails the connection will be told by reading from it, after what still is to be read.
    if (sent < 0) {
      pending_.clear();
      break;
    }
    pending_.erase(0, static_cast<std::size_t>(sent));
  }
  forget_empty(pending_);
  Service::instance().rewatch(socket_.get(),
                              EPOLLIN | (pending_.empty() ? 0U : static_cast<unsigned>(EPOLLOUT)));
}

void Connection::fail_with(const std::string& reason) {
  if (state_ == State::closed) return;
  bool is_attempt = state_ == State::connecting || state_ == State::client_waits_hello;
  if (is_attempt) {
    note_failure(reason);
    Service::instance().unwatch(socket_.get());
    received_.clear();
    pending_.clear();
    if (try_next_address() || try_again_later()) return;
  }
  std::function<void(const std::string&)> closed;
  closed.swap(handlers_.closed);  // close() forgets the handlers
  close();
  if (closed) closed(is_attempt ? failures_ : reason);
}

void Connection::close() {
  if (state_ == State::closed) return;
  if (state_ == State::open && !pending_.empty()) write_pending();
  if (socket_) Service::instance().unwatch(socket_.get());
  socket_ = FileDescriptor();
  forget();
}

std::pair<FileDescriptor, std::string> Connection::detach() {
  Service::instance().unwatch(socket_.get());
  std::pair<FileDescriptor, std::string> result{std::move(socket_), std::move(received_)};
  received_.clear();
  forget();
  return result;
}

void Connection::forget() {
  state_ = State::closed;
  handlers_ = {};
  realm_.reset();  // whose directory may hold this connection
  Service::instance().drop(shared_from_this());
}

}  // namespace tutti
