// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/service.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <exception>
#include <future>

#include "base/log.hpp"
#include "base/thread.hpp"
#include "bootstrap/congestion.hpp"
#include "bootstrap/connection.hpp"
#include "bootstrap/directory.hpp"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

// A listener that cannot accept (no descriptors left) is left alone for a while.
constexpr std::chrono::milliseconds kAcceptPause{100};
// Those that were accepted at once wait for their first answer while the next are accepted.
constexpr int kAcceptsAtOnce = 64;

// So many connections may be without proof: a flood of strangers takes half of the descriptors at most.
std::size_t most_strangers() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return std::clamp<std::size_t>(limit.rlim_cur / 2, 16, 4096);
}

}  // namespace

Service& Service::instance() {
  static Service service;
  if (is_forked_child())
    fail(ncclInvalidUsage,
         "this process is a child of fork() of a process that uses the library, and cannot use it itself: "
         "start "
         "ranks with exec, or fork before the first call");
  return service;
}

Service::Service() {
  static const int kRegistered = pthread_atfork(nullptr, nullptr, [] { in_forked_child_ = true; });
  (void)kRegistered;
  epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  wake_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_) fail_errno("the control service's epoll");
  watch(wake_.get(), EPOLLIN, [this](std::uint32_t) {
    std::uint64_t count = 0;
    while (read(wake_.get(), &count, sizeof count) > 0) {
    }
    run_posted();  // after the count was taken: a job posted meanwhile wakes the loop again
  });
  interfaces_ = chosen_interfaces();
  for (const Interface& interface : interfaces_) {
    FileDescriptor listener = open_listener(interface.address);
    if (!listener) fail_errno("a port to listen at");
    listen_addresses_.push_back(Address::of_socket(listener.get()));
    listeners_.emplace(listen_addresses_.back().to_string(), std::move(listener));
  }
  open_descriptor_socket();
  thread_ = start_thread("tutti-service", [this] { loop(); });
}

Service::~Service() {
  if (is_forked_child()) {  // the thread is not here; its object must not be destroyed as running
    thread_.detach();
    return;
  }
  post([this] { stopping_ = true; });
  thread_.join();
}

void Service::post(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(job));
  }
  std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

void Service::run(const std::function<void()>& job) {
  if (std::this_thread::get_id() == thread_.get_id()) return job();
  std::promise<void> done;
  post([&] {
    try {
      job();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  });
  done.get_future().get();
}

void Service::loop() {
  std::array<epoll_event, 64> events{};
  while (!stopping_) {
    std::chrono::milliseconds wait = run_timers();
    int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                           static_cast<int>(wait.count()));
    for (int i = 0; i < count; ++i) {
      // A handler may unwatch others whose events were already fetched, and itself.
      auto found = handlers_.find(events[static_cast<std::size_t>(i)].data.fd);
      if (found == handlers_.end()) continue;
      auto handler = found->second;
      try {
        (*handler)(events[static_cast<std::size_t>(i)].events);
      } catch (const std::exception& error) {
        log_warning("control service: {}", error.what());
      }
    }
  }
  connections_.clear();
}

void Service::run_posted() {
  std::vector<std::function<void()>> jobs;
  {
    std::lock_guard lock(mutex_);
    jobs.swap(posted_);
  }
  for (auto& job : jobs) {
    try {
      job();
    } catch (const std::exception& error) {
      log_warning("control service: {}", error.what());
    }
  }
}

std::chrono::milliseconds Service::run_timers() {
  while (!timers_.empty() && timers_.begin()->first <= Clock::now()) {
    auto job = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    job();
  }
  if (timers_.empty()) return std::chrono::milliseconds(60'000);
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(timers_.begin()->first - Clock::now());
  return std::max(std::chrono::milliseconds(0), left) + std::chrono::milliseconds(1);
}

std::shared_ptr<Realm> Service::realm(const Secret& secret) {
  std::erase_if(realms_, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = realms_[RealmName::of(secret)];
  auto realm = entry.lock();
  if (!realm) entry = realm = std::make_shared<Realm>(secret);
  return realm;
}

std::shared_ptr<Realm> Service::find_realm(const RealmName& name) {
  auto found = realms_.find(name);
  return found == realms_.end() ? nullptr : found->second.lock();
}

void Service::watch(int file, std::uint32_t events, Handler handler) {
  handlers_[file] = std::make_shared<Handler>(std::move(handler));
  epoll_event event{};
  event.events = events;
  event.data.fd = file;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, file, &event) != 0) fail_errno("epoll_ctl");
}

void Service::rewatch(int file, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = file;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, file, &event);
}

void Service::unwatch(int file) {
  handlers_.erase(file);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, file, nullptr);
}

void Service::at(Clock::time_point when, std::function<void()> job) { timers_.emplace(when, std::move(job)); }

void Service::keep(const std::shared_ptr<Connection>& connection) { connections_.push_back(connection); }

void Service::drop(const std::shared_ptr<Connection>& connection) {
  auto found = std::find(connections_.begin(), connections_.end(), connection);
  if (found == connections_.end()) return;
  std::swap(*found, connections_.back());
  connections_.pop_back();
}

void Service::let_go(const void* object) {
  auto found =
      std::find_if(held_.begin(), held_.end(), [object](const auto& held) { return held.get() == object; });
  if (found == held_.end()) return;
  auto last_reference = std::move(*found);  // freed when the list is in order again
  held_.erase(found);
  post([last_reference] {});  // and not while one of its own functions runs
}

void Service::on_process_end(int pid, const std::weak_ptr<void>& while_alive,
                             std::function<void()> callback) {
  ProcessWatch& process = processes_[pid];
  std::erase_if(process.callbacks, [](const auto& entry) { return entry.first.expired(); });
  process.callbacks.emplace_back(while_alive, std::move(callback));
  if (process.file) return;
  process.file = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  auto ended = [this, pid] {
    auto found = processes_.extract(pid);
    if (found.empty()) return;
    if (found.mapped().file) unwatch(found.mapped().file.get());
    for (auto& [alive, call] : found.mapped().callbacks)
      if (auto owner = alive.lock()) call();
  };
  if (process.file)
    watch(process.file.get(), EPOLLIN, [ended](std::uint32_t) { ended(); });
  else if (errno == ESRCH)
    at(Clock::now(), ended);
  // Otherwise (an old kernel, a sandbox) the control tree's connections have to tell.
}

// None if the port is taken.
FileDescriptor Service::open_listener(const Address& address) {
  FileDescriptor listener(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener) fail_errno("a socket to listen on");
  int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  choose_congestion_control(listener.get());
  if (bind(listener.get(), address.get(), address.size()) != 0 || listen(listener.get(), 1024) != 0) {
    if (errno == EADDRINUSE) return {};
    if (errno == EADDRNOTAVAIL)
      fail(ncclSystemError,
           "listening at {}: this host has no such address; rank 0 must run on the host that was agreed on",
           address.to_string());
    fail_errno("listening at " + address.to_string());
  }
  int file = listener.get();
  watch(file, EPOLLIN, [this, file](std::uint32_t) { accept_from(file); });
  return listener;
}

void Service::listen_at(std::vector<Address> addresses, int ports) {
  run([&] {
    for (int tried = 0; !try_listen_at(addresses); ++tried) {
      if (tried == ports - 1)
        fail(ncclSystemError,
             "listening at {}: the port is taken{}; agree on another one (MASTER_PORT, TUTTI_JOIN_PORT, "
             "NCCL_COMM_ID)",
             to_string(addresses), tried == 0 ? "" : fmt::format(", and so are the {} before it", tried));
      for (Address& address : addresses) address.set_port(static_cast<std::uint16_t>(address.port() + 1));
    }
  });
}

bool Service::try_listen_at(const std::vector<Address>& addresses) {
  std::map<std::string, FileDescriptor> opened;
  for (const Address& address : addresses) {
    if (listeners_.contains(address.to_string())) continue;
    FileDescriptor listener = open_listener(address);
    if (!listener) {
      for (auto& [name, earlier] : opened) unwatch(earlier.get());
      return false;
    }
    opened.emplace(address.to_string(), std::move(listener));
  }
  listeners_.merge(opened);
  return true;
}

void Service::host_directory(const Secret& secret, std::chrono::milliseconds limit) {
  run([&] {
    auto hosted = realm(secret);
    hosted->directory = std::make_shared<Directory>(
        limit, [this, weak = std::weak_ptr(hosted)] { std::erase(hosted_, weak.lock()); });
    hosted_.push_back(hosted);
  });
}

void Service::accept_from(int listener) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    FileDescriptor socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return;
      rewatch(listener, 0);
      at(Clock::now() + kAcceptPause, [this, listener] { rewatch(listener, EPOLLIN); });
      return;
    }
    // The oldest make room: who belongs to a job answers at once, and comes again if that was not soon
    // enough.
    for (; strangers_.size() >= most_strangers(); strangers_.pop_front())
      if (auto oldest = strangers_.front().lock(); oldest && oldest->is_stranger()) oldest->close();
    strangers_.push_back(Connection::accept(std::move(socket)));
  }
}

}  // namespace tutti
