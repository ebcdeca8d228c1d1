// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/control.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/log.hpp"
#include "bootstrap/directory.hpp"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

// A rendezvous that is not there yet (its process starts later) is tried again.
constexpr std::chrono::milliseconds kRetry{50};
// The rendezvous knows who is missing: it gets the first word at the deadline.
constexpr std::chrono::milliseconds kGrace{2000};
constexpr std::chrono::milliseconds kBetterWord{500};

Secret common_secret(const std::vector<UniqueId>& ids) {
  if (ids.size() == 1) return ids[0].secret;
  std::string all;
  for (const UniqueId& id : ids)
    all.append(reinterpret_cast<const char*>(id.secret.bytes.data()), id.secret.bytes.size());
  return Secret::derive(all);
}

}  // namespace

std::string describe_process() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("pid {} on {}", getpid(), host.data());
}

std::shared_ptr<Control> Control::create(Parameters parameters) {
  auto control = std::shared_ptr<Control>(new Control(std::move(parameters)));
  Service& service = Service::instance();
  service.run([&] {
    control->realm_ = service.realm(control->secret_);
    auto& endpoints = control->realm_->endpoints;
    std::erase_if(endpoints, [](const auto& endpoint) { return endpoint.expired(); });
    endpoints.insert(endpoints.begin(), control);
  });
  return control;
}

Control::Control(Parameters parameters)
    : parameters_(std::move(parameters)), secret_(common_secret(parameters_.ids)) {}

Control::~Control() = default;

std::vector<int> Control::children() const {
  std::vector<int> result;
  for (int child : {2 * parameters_.rank + 1, 2 * parameters_.rank + 2})
    if (child < parameters_.ranks) result.push_back(child);
  return result;
}

void Control::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready) {
  changed_.wait(lock, [&] { return ready() || error_ != ncclSuccess; });
  if (!ready()) throw Error(error_, error_text_);
}

// While ranks join, the rendezvous knows better why one went: its word gets time to arrive.
void Control::interrupt_unless_refused(ncclResult_t code, const std::string& reason) {
  if (is_ready()) return interrupt(code, reason);
  Service::instance().at(Clock::now() + kBetterWord, [weak = weak_from_this(), code, reason] {
    if (auto self = weak.lock()) self->interrupt(code, reason);
  });
}

bool Control::is_ready() {
  std::lock_guard lock(mutex_);
  return ready_;
}

void Control::interrupt(ncclResult_t code, const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (error_ == ncclSuccess) {
    error_ = code;
    error_text_ = reason;
  }
  changed_.notify_all();
}

void Control::join() {
  if (parameters_.ranks == 1) {
    ready_ = true;
    return;
  }
  Service::instance().post([self = shared_from_this()] { self->start(); });
  std::unique_lock lock(mutex_);
  try {
    wait(lock, [this] { return ready_; });
  } catch (const Error& error) {
    lock.unlock();
    Service::instance().run([&] {
      // Neighbours that have all of their own are told why this goes no further.
      if (failed_.insert(parameters_.rank).second)
        spread_notice(-1, error.code(), parameters_.rank, error.what());
      for (auto& [group, connection] : directories_) connection->close();
      for (auto& [peer, link] : links_) link->close();
      directories_.clear();
      links_.clear();
    });
    throw;
  }
}

void Control::start() {
  if (parameters_.limit.count() > 0)
    Service::instance().at(Clock::now() + parameters_.limit + kGrace, [weak = weak_from_this()] {
      auto self = weak.lock();
      if (!self) return;
      if (!self->is_ready())
        self->interrupt(
            ncclSystemError,
            fmt::format("rank {} could not join within {} s; the rendezvous at {} is not reachable or "
                        "does not know the id",
                        self->parameters_.rank, static_cast<double>(self->parameters_.limit.count()) / 1000,
                        to_string(self->parameters_.ids[0].rendezvous)));
    });
  if (parameters_.silence.count() > 0) beat();
  auto groups = static_cast<int>(parameters_.ids.size());
  connect_directory(parameters_.rank % groups);
  if (parent() >= 0 && parent() % groups != parameters_.rank % groups) connect_directory(parent() % groups);
}

void Control::connect_directory(int group) {
  const UniqueId& id = parameters_.ids[static_cast<std::size_t>(group)];
  auto groups = static_cast<int>(parameters_.ids.size());
  auto opened = [weak = weak_from_this(), group, groups] {
    auto self = weak.lock();
    if (!self) return;
    const Parameters& own = self->parameters_;
    auto& connection = self->directories_.at(group);
    // A directory that serves the parent but not this rank is only asked; registering twice would be a
    // mistake.
    bool mine = own.rank % groups == group;
    WireWriter registration;
    registration.put(own.ranks).put(mine ? own.rank : -1 - own.rank).put(groups).put(group);
    write_addresses(registration, Service::instance().listen_addresses());
    registration.put(describe_process());
    connection->send(MessageType::register_rank, registration);
    if (self->parent() >= 0 && self->parent() % groups == group)
      connection->send(MessageType::look_up, WireWriter().put(self->parent()));
  };
  auto message = [weak = weak_from_this()](MessageType type, WireReader& reader) {
    if (auto self = weak.lock()) self->on_directory_message(type, reader);
  };
  auto closed = [weak = weak_from_this(), group](const std::string& reason) {
    if (auto self = weak.lock()) self->on_directory_closed(group, reason);
  };
  try {
    directories_[group] = Connection::connect(id.places(), id.secret, {opened, message, closed});
  } catch (const Error& error) {
    on_directory_closed(group, error.what());
  }
}

void Control::on_directory_closed(int group, const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (ready_ || error_ != ncclSuccess) return;
  }
  log_info("rank {}: rendezvous: {}; trying again", parameters_.rank, reason);
  Service::instance().at(Clock::now() + kRetry, [weak = weak_from_this(), group] {
    auto self = weak.lock();
    if (!self) return;
    {
      std::lock_guard lock(self->mutex_);
      if (self->ready_ || self->error_ != ncclSuccess) return;
    }
    self->connect_directory(group);
  });
}

void Control::on_directory_message(MessageType type, WireReader& message) {
  if (type == MessageType::refused) {
    auto code = message.get<ncclResult_t>();
    interrupt(code, message.get_text());
  } else if (type == MessageType::found) {
    connect_parent(read_addresses(message));
  }
}

void Control::connect_parent(const std::vector<Address>& addresses) {
  if (links_.contains(parent())) return;
  auto opened = [weak = weak_from_this()] {
    if (auto self = weak.lock())
      self->links_.at(self->parent())
          ->send(MessageType::attach, WireWriter().put(self->parent()).put(self->parameters_.rank));
  };
  auto message = [weak = weak_from_this()](MessageType type, WireReader& reader) {
    if (auto self = weak.lock()) self->on_link_message(self->parent(), type, reader);
  };
  auto closed = [weak = weak_from_this()](const std::string& reason) {
    if (auto self = weak.lock()) self->on_link_closed(self->parent(), reason);
  };
  try {
    links_[parent()] = Connection::connect(addresses, secret_, {opened, message, closed});
  } catch (const Error& error) {
    interrupt(ncclSystemError,
              fmt::format("rank {} cannot reach rank {}: {}", parameters_.rank, parent(), error.what()));
  }
}

void Control::accept_child(const std::shared_ptr<Connection>& connection, int child) {
  auto mine = children();
  if (std::find(mine.begin(), mine.end(), child) == mine.end() || links_.contains(child)) {
    connection->close();
    return;
  }
  links_[child] = connection;
  connection->set_handlers({.opened = {},
                            .message =
                                [weak = weak_from_this(), child](MessageType type, WireReader& reader) {
                                  if (auto self = weak.lock()) self->on_link_message(child, type, reader);
                                },
                            .closed =
                                [weak = weak_from_this(), child](const std::string& reason) {
                                  if (auto self = weak.lock()) self->on_link_closed(child, reason);
                                }});
  connection->send(MessageType::attached, WireWriter());
  check_ready();
}

void Control::take_links(LinkTaker taker) {
  Service::instance().run([&] { link_taker_ = std::move(taker); });
}

void Control::accept_link(const std::shared_ptr<Connection>& connection, int from, WireReader& message) {
  if (link_taker_ && from >= 0 && from < parameters_.ranks)
    link_taker_(connection, from, message);
  else
    connection->close();
}

void Control::check_ready() {
  std::size_t neighbours = children().size() + (parent() >= 0 ? 1 : 0);
  if (links_.size() < neighbours || (parent() >= 0 && !attached_)) return;
  {
    std::lock_guard lock(mutex_);
    if (ready_) return;
    ready_ = true;
  }
  for (auto& [group, connection] : directories_) {
    connection->send(MessageType::joined, WireWriter());
    connection->close();
  }
  directories_.clear();
  changed_.notify_all();
}

// A process that is stopped, or a host that nothing comes from any more, does not close its connections.
// Ranks that wait for others to join are alive, too: signs of life are sent from the first connection on.
void Control::beat() {
  auto now = Clock::now();
  std::vector<int> silent;
  for (auto& [peer, link] : links_) {
    auto heard = heard_.emplace(peer, now).first->second;
    if (now - heard > parameters_.silence) silent.push_back(peer);
    link->send(MessageType::alive, WireWriter());
  }
  for (int peer : silent) {
    links_.at(peer)->close();
    lose_neighbour(peer,
                   fmt::format("nothing has come from it for {} s (TUTTI_PEER_TIMEOUT): it is stopped, or "
                               "its host cannot be reached",
                               static_cast<double>(parameters_.silence.count()) / 1000));
  }
  if (links_.empty() && is_ready()) return;
  Service::instance().at(now + parameters_.silence / 4, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->beat();
  });
}

void Control::on_link_message(int peer, MessageType type, WireReader& message) {
  heard_[peer] = Clock::now();
  switch (type) {
    case MessageType::alive:
      return;
    case MessageType::attached:
      attached_ = true;
      return check_ready();
    case MessageType::gather: {
      auto number = message.get<std::uint32_t>();
      auto count = message.get<std::uint32_t>();
      Round& round = rounds_[number];
      for (std::uint32_t i = 0; i < count; ++i) {
        int rank = message.get<int>();
        round.parts[rank] = message.get_text();
      }
      ++round.subtrees;
      return advance_round(number);
    }
    case MessageType::table:
      return on_table(message);
    case MessageType::notice:
      return on_notice(peer, message);
    default:
      fail(ncclSystemError, "an unexpected control message ({})", static_cast<int>(type));
  }
}

std::vector<std::string> Control::all_gather(const std::string& contribution) {
  std::unique_lock lock(mutex_);
  std::uint32_t number = next_round_++;
  lock.unlock();
  Service::instance().post([self = shared_from_this(), number, contribution] {
    Round& round = self->rounds_[number];
    round.parts[self->parameters_.rank] = contribution;
    round.own = true;
    self->advance_round(number);
  });
  lock.lock();
  wait(lock, [&] { return results_.contains(number); });
  auto result = std::move(results_.at(number));
  results_.erase(number);
  return result;
}

void Control::advance_round(std::uint32_t number) {
  Round& round = rounds_.at(number);
  if (!round.own || round.subtrees < children().size()) return;
  if (parent() >= 0) {
    WireWriter up;
    up.put(number).put(static_cast<std::uint32_t>(round.parts.size()));
    for (auto& [rank, part] : round.parts) up.put(rank).put(part);
    if (auto link = links_.find(parent()); link != links_.end()) link->second->send(MessageType::gather, up);
    rounds_.erase(number);
    return;
  }
  std::vector<std::string> table(static_cast<std::size_t>(parameters_.ranks));
  for (auto& [rank, part] : round.parts)
    if (rank >= 0 && rank < parameters_.ranks) table[static_cast<std::size_t>(rank)] = std::move(part);
  rounds_.erase(number);
  finish(number, table);
}

void Control::on_table(WireReader& message) {
  auto number = message.get<std::uint32_t>();
  std::vector<std::string> table(static_cast<std::size_t>(parameters_.ranks));
  for (std::string& part : table) part = message.get_text();
  finish(number, table);
}

void Control::finish(std::uint32_t number, const std::vector<std::string>& table) {
  WireWriter down;
  down.put(number);
  for (const std::string& part : table) down.put(part);
  for (int child : children())
    if (auto link = links_.find(child); link != links_.end()) link->second->send(MessageType::table, down);
  {
    std::lock_guard lock(mutex_);
    results_[number] = table;
  }
  changed_.notify_all();
}

void Control::announce_failure(int rank, ncclResult_t code, const std::string& reason) {
  Service::instance().post([self = shared_from_this(), rank, code, reason] {
    if (self->failed_.insert(rank).second) self->spread_notice(-1, code, rank, reason);
  });
}

void Control::leave() {
  Service::instance().post([self = shared_from_this()] {
    self->leaving_ = true;
    Service::instance().hold(self);
    self->spread_notice(-1, ncclSuccess, self->parameters_.rank, "");
    self->close_if_alone();
  });
}

void Control::spread_notice(int except, ncclResult_t code, int rank, const std::string& reason) {
  WireWriter notice;
  notice.put(code).put(rank).put(reason);
  for (auto& [peer, link] : links_)
    if (peer != except) link->send(MessageType::notice, notice);
}

void Control::on_notice(int from, WireReader& message) {
  auto code = message.get<ncclResult_t>();
  int rank = message.get<int>();
  std::string reason = message.get_text();
  std::set<int>& known = code == ncclSuccess ? left_ : failed_;
  if (!known.insert(rank).second) return;
  spread_notice(from, code, rank, reason);
  if (code != ncclSuccess) {
    interrupt_unless_refused(code, reason);
    if (!leaving_ && parameters_.on_failure) parameters_.on_failure(rank, code, reason);
  } else {
    if (!leaving_ && parameters_.on_left) parameters_.on_left(rank);
    close_if_alone();
  }
}

void Control::on_link_closed(int peer, const std::string& reason) {
  lose_neighbour(peer, fmt::format("its control connection ended ({})", reason));
}

void Control::lose_neighbour(int peer, const std::string& reason) {
  links_.erase(peer);
  bool left = left_.contains(peer) || (parameters_.has_left && parameters_.has_left(peer));
  if (!left && failed_.insert(peer).second) {
    std::string text = fmt::format(
        "{} is gone: {}", parameters_.name ? parameters_.name(peer) : fmt::format("rank {}", peer), reason);
    spread_notice(-1, ncclRemoteError, peer, text);
    interrupt_unless_refused(ncclRemoteError, text);
    if (!leaving_ && parameters_.on_failure) parameters_.on_failure(peer, ncclRemoteError, text);
  }
  close_if_alone();
}

// An endpoint that has left stays to pass news on while a neighbour may still need it.
void Control::close_if_alone() {
  if (!leaving_) return;
  for (auto& [peer, link] : links_)
    if (!left_.contains(peer)) return;
  for (auto& [peer, link] : links_) link->close();
  links_.clear();
  Service::instance().let_go(this);
}

}  // namespace tutti
