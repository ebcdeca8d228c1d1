// SPDX-License-Identifier: BSD-3-Clause
#include "transport/tcp_lane.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/log.hpp"
#include "bootstrap/congestion.hpp"

namespace tutti {
namespace {

using std::chrono::milliseconds;

// The control network knows better why a rank went: its word gets time to arrive.
constexpr milliseconds kBetterWord{1000};

// What a connecting rank says behind the two ranks' numbers.
struct LinkRequest {
  int lane = 0, stripe = 0, stripes = 1;
};

void set_options(int socket, milliseconds silence) {
  auto set = [socket](int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  if (silence.count() == 0) return;
  int seconds = std::max(1, static_cast<int>(silence.count() / 1000));
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence.count()));
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
  set(IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 4));
  set(IPPROTO_TCP, TCP_KEEPCNT, 2);
}

}  // namespace

// Where the service thread leaves connections for the rank's own thread.
struct TcpLanes::Mailbox {
  struct Arriving {
    int peer = 0, lane = 0;
    std::vector<TcpLink::Opened> sockets;
    bool is_complete() const {
      return std::ranges::all_of(
          sockets, [](const TcpLink::Opened& opened) { return static_cast<bool>(opened.socket); });
    }
  };
  std::mutex mutex;
  std::atomic<bool> has_news{false};
  std::vector<Arriving> arriving;
  std::string failure;
  std::function<void()> ring;

  // [service]
  static void dial(const std::shared_ptr<Mailbox>& box, const Secret& secret,
                   const std::vector<Address>& addresses, int rank, int peer, const std::string& name,
                   const LinkRequest& request);
  void take(int peer, const LinkRequest& request, FileDescriptor socket, std::string received) {
    std::lock_guard lock(mutex);
    auto found = std::ranges::find_if(
        arriving, [&](const Arriving& other) { return other.peer == peer && other.lane == request.lane; });
    if (found == arriving.end()) {
      arriving.push_back({peer, request.lane, {}});
      found = arriving.end() - 1;
      found->sockets.resize(static_cast<std::size_t>(request.stripes));
    }
    if (static_cast<std::size_t>(request.stripe) >= found->sockets.size()) return;
    found->sockets[static_cast<std::size_t>(request.stripe)] = {std::move(socket), std::move(received)};
    if (found->is_complete()) tell();
  }
  void fail_with(const std::string& reason) {
    std::lock_guard lock(mutex);
    if (failure.empty()) failure = reason;
    tell();
  }
  void tell() {
    has_news.store(true, std::memory_order_release);
    ring();
  }
};

class TcpLanes::TcpInlet final : public Inlet {
 public:
  explicit TcpInlet(TcpLink& link) : link_(link) {}
  bool peek(ArrivedMessage& message, std::size_t expected, void* wanted) override {
    return link_.peek(message, expected, wanted);
  }
  bool has_message() const override { return link_.has_message(); }
  std::size_t fetch(void*, std::size_t) override {
    fail(ncclInternalError, "a message of a tcp lane is never fetched");
  }
  void release() override { link_.release(); }
  int source() const override { return link_.peer(); }

 private:
  TcpLink& link_;
};

class TcpLanes::TcpOutlet final : public Outlet {
 public:
  TcpOutlet(std::vector<int> destinations, std::vector<TcpLink*> links, std::size_t slice)
      : destinations_(std::move(destinations)), links_(std::move(links)), slice_(slice) {}

  bool has_room() override {
    return std::ranges::all_of(links_, [](TcpLink* link) { return link->has_room(); });
  }
  // What is in the slot is copied where the kernel does not take it at once.
  bool has_slot() override { return true; }
  std::byte* slot() override {
    if (slot_.empty()) slot_.resize((slice_ + sizeof(Line) - 1) / sizeof(Line));
    return slot_.data()->bytes;
  }
  void commit(std::size_t bytes, void*, const CallHeader& header) override {
    send_inline(slot(), bytes, header);
  }
  std::size_t most_inline() const override { return kInlineBytes; }
  void send_inline(const void* data, std::size_t bytes, const CallHeader& header) override {
    for (TcpLink* link : links_) link->send(data, bytes, false, header);
  }
  bool can_reach(const void*, std::size_t) const override { return true; }
  void offer(const void* data, std::size_t bytes, void*, const CallHeader& header) override {
    for (TcpLink* link : links_) link->send(data, bytes, true, header);
  }
  void send_placed(std::size_t, const CallHeader&) override {
    fail(ncclInternalError, "nothing is placed over a tcp lane");
  }
  bool has_settled() override {
    return std::ranges::all_of(links_, [](TcpLink* link) { return link->is_written(); });
  }
  bool must_settle() const override { return true; }
  std::span<const int> destinations() const override { return destinations_; }

 private:
  std::vector<int> destinations_;
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<TcpLink*> links_;
  std::size_t slice_;
  std::vector<Line> slot_;
};

TcpLanes::TcpLanes(const std::shared_ptr<Control>& control, Options options)
    : options_(std::move(options)),
      rank_(control->rank()),
      control_(control),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      mailbox_(std::make_shared<Mailbox>()) {
  if (!epoll_) fail_errno("an epoll for data connections");
  check_congestion_setting();
  mailbox_->ring = options_.ring;
  std::size_t ends = options_.peers.size() * static_cast<std::size_t>(options_.lanes);
  links_.resize(ends);
  inlets_.resize(ends);
  outlets_.resize(static_cast<std::size_t>(options_.lanes));
  control_->take_links([mailbox = std::weak_ptr(mailbox_), rank = rank_, peers = options_.peers.size(),
                        lanes = options_.lanes](const std::shared_ptr<Connection>& connection, int from,
                                                WireReader& message) {
    auto box = mailbox.lock();
    LinkRequest request{message.get<int>(), message.get<int>(), message.get<int>()};
    bool valid = from > rank && static_cast<std::size_t>(from) < peers && request.lane >= 0 &&
                 request.lane < lanes && request.stripes >= 1 && request.stripes <= TcpLink::kMostStripes &&
                 request.stripe >= 0 && request.stripe < request.stripes;
    if (!box || !valid) return connection->close();
    connection->send(MessageType::linked, WireWriter());
    auto [socket, received] = connection->detach();
    box->take(from, request, std::move(socket), std::move(received));
  });
}

TcpLanes::~TcpLanes() = default;

// One socket of a link, by the rank that connects.
void TcpLanes::Mailbox::dial(const std::shared_ptr<Mailbox>& box, const Secret& secret,
                             const std::vector<Address>& addresses, int rank, int peer,
                             const std::string& name, const LinkRequest& request) {
  auto connection = std::make_shared<std::weak_ptr<Connection>>();
  auto opened = [connection, rank, peer, request] {
    if (auto open = connection->lock())
      open->send(MessageType::link,
                 WireWriter().put(peer).put(rank).put(request.lane).put(request.stripe).put(request.stripes));
  };
  auto message = [connection, weak = std::weak_ptr(box), peer, request](MessageType type, WireReader&) {
    auto open = connection->lock();
    auto mailbox = weak.lock();
    if (!open) return;
    if (!mailbox || type != MessageType::linked) return open->close();
    auto [socket, received] = open->detach();
    mailbox->take(peer, request, std::move(socket), std::move(received));
  };
  auto closed = [weak = std::weak_ptr(box), rank, name](const std::string& reason) {
    if (auto mailbox = weak.lock())
      mailbox->fail_with(
          fmt::format("rank {} could not connect to {} ({}); NCCL_SOCKET_IFNAME chooses the "
                      "interfaces, and a firewall must let connections between them pass",
                      rank, name, reason));
  };
  try {
    *connection = Connection::connect(addresses, secret, {opened, message, closed});
  } catch (const Error& error) {
    closed(error.what());
  }
}

TcpLink& TcpLanes::link(int peer, int lane) {
  std::size_t index = static_cast<std::size_t>(peer) * static_cast<std::size_t>(options_.lanes) +
                      static_cast<std::size_t>(lane);
  if (links_[index]) return *links_[index];
  links_[index] = std::make_unique<TcpLink>(peer);
  used_.push_back(links_[index].get());
  if (peer > rank_) return *links_[index];
  const TcpPeer& to = options_.peers[static_cast<std::size_t>(peer)];
  int ways = direct_ways(to.addresses, Service::instance().interfaces());
  int stripes = std::min(ways * options_.sockets_per_way, TcpLink::kMostStripes);
  for (int stripe = 0; stripe < stripes; ++stripe) {
    std::vector<Address> addresses = nearest_first(to.addresses, Service::instance().interfaces());
    std::rotate(addresses.begin(), addresses.begin() + stripe % ways, addresses.end());
    Service::instance().post([box = mailbox_, secret = control_->secret(), addresses, rank = rank_, peer,
                              name = to.name, request = LinkRequest{lane, stripe, stripes}] {
      Mailbox::dial(box, secret, addresses, rank, peer, name, request);
    });
  }
  return *links_[index];
}

bool TcpLanes::progress() {
  bool moved = false;
  if (mailbox_->has_news.load(std::memory_order_acquire)) {
    open_links();
    moved = true;
  }
  if (!failure_.empty() && std::chrono::steady_clock::now() - failed_at_ >= kBetterWord)
    throw Error(ncclRemoteError, failure_);
  for (TcpLink* link : used_) {
    if (!link->is_written() && link->write()) moved = true;
    if (link->has_lost_since(kBetterWord))
      fail(ncclRemoteError, "the connection to {} is lost: {}",
           options_.peers[static_cast<std::size_t>(link->peer())].name, *link->lost());
  }
  return moved;
}

void TcpLanes::open_links() {
  std::vector<Mailbox::Arriving> complete;
  {
    std::lock_guard lock(mailbox_->mutex);
    mailbox_->has_news.store(false);
    auto& arriving = mailbox_->arriving;
    auto rest = std::partition(arriving.begin(), arriving.end(),
                               [](const Mailbox::Arriving& a) { return !a.is_complete(); });
    std::move(rest, arriving.end(), std::back_inserter(complete));
    arriving.erase(rest, arriving.end());
    failure_ = mailbox_->failure;
    if (!failure_.empty()) failed_at_ = std::chrono::steady_clock::now();
  }
  for (Mailbox::Arriving& arrived : complete)
    take_link(arrived.peer, arrived.lane, std::move(arrived.sockets));
}

void TcpLanes::take_link(int peer, int lane, std::vector<TcpLink::Opened> sockets) {
  for (const auto& [socket, received] : sockets) {
    set_options(socket.get(), options_.silence);
    review_congestion_control(socket.get());
    epoll_event event{};
    // Whatever news there is, once: what it is will be seen where somebody waits for it.
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) fail_errno("epoll_ctl");
  }
  TcpLink& link = this->link(peer, lane);
  if (link.is_open()) fail(ncclInternalError, "rank {} connected twice on lane {}", peer, lane);
  log_info("rank {}: connected with rank {} for lane {}, {} socket{}", rank_, peer, lane, sockets.size(),
           sockets.size() == 1 ? "" : "s");
  link.open(std::move(sockets));
}

void TcpLanes::take_events() {
  std::array<epoll_event, 64> events;
  while (epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0) ==
         static_cast<int>(events.size())) {
  }
}

bool TcpLanes::is_through(int peer) const {
  return std::ranges::none_of(used_, [peer](const TcpLink* link) {
    return link->peer() == peer && link->is_open() && !link->lost();
  });
}

Inlet& TcpLanes::inlet(int source, int lane) {
  auto& end = inlets_[static_cast<std::size_t>(source) * static_cast<std::size_t>(options_.lanes) +
                      static_cast<std::size_t>(lane)];
  if (!end) end = std::make_unique<TcpInlet>(link(source, lane));
  return *end;
}

Outlet& TcpLanes::outlet(const std::vector<int>& destinations, int lane) {
  auto& ends = outlets_[static_cast<std::size_t>(lane)];
  for (auto& end : ends)
    if (std::ranges::equal(end->destinations(), destinations)) return *end;
  std::vector<TcpLink*> links;
  for (int destination : destinations) links.push_back(&link(destination, lane));
  ends.push_back(std::make_unique<TcpOutlet>(destinations, std::move(links), options_.slice));
  return *ends.back();
}

}  // namespace tutti
