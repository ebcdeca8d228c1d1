// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "bootstrap/interfaces.hpp"
#include "bootstrap/realm.hpp"
#include "memory/host_memory.hpp"

namespace tutti {

class Connection;

/// The thread of a process that serves all its control connections: one epoll loop, one TCP listener and one
/// Unix socket for all communicators. Functions marked [service] are to be called on that thread alone.
class Service {
 public:
  /// Starts the thread on first use. Throws ncclInvalidUsage in a child of fork(), which has no such thread.
  static Service& instance();
  /// Whether this process is a child of fork() of a process that used the library.
  static bool is_forked_child() { return in_forked_child_.load(std::memory_order_relaxed); }

  /// Runs `job` on the service thread soon, or (run) waits for it; exceptions of run's job reach the caller.
  void post(std::function<void()> job);
  void run(const std::function<void()>& job);

  /// Where peers reach this process's listeners: one on each interface that it uses.
  const std::vector<Address>& listen_addresses() const { return listen_addresses_; }
  const std::vector<Interface>& interfaces() const { return interfaces_; }
  /// Makes this process the rendezvous of an id until all ranks have joined, within `limit`.
  void host_directory(const Secret& secret, std::chrono::milliseconds limit);
  /// More listeners, at addresses that were agreed on: all at the same of so many ports, the first that is
  /// free (or ours since an earlier call). Throws ncclSystemError when there is none.
  void listen_at(std::vector<Address> addresses, int ports);
  /// The abstract Unix socket at which processes of this host get descriptors.
  const std::string& descriptor_socket() const { return descriptor_socket_; }

  // [service]
  std::shared_ptr<Realm> realm(const Secret& secret);  ///< made if it is not there
  std::shared_ptr<Realm> find_realm(const RealmName& name);
  using Handler = std::function<void(std::uint32_t events)>;
  void watch(int file, std::uint32_t events, Handler handler);
  void rewatch(int file, std::uint32_t events);
  void unwatch(int file);
  void at(std::chrono::steady_clock::time_point when, std::function<void()> job);
  /// Keeps a connection until it is dropped.
  void keep(const std::shared_ptr<Connection>& connection);
  void drop(const std::shared_ptr<Connection>& connection);
  /// Keeps an object (an endpoint that has left but still passes news on) until it is let go or the process
  /// ends.
  void hold(std::shared_ptr<void> object) { held_.push_back(std::move(object)); }
  void let_go(const void* object);
  /// Calls back once when the process ends (at once if it is gone); not at all where the kernel cannot tell.
  void on_process_end(int pid, const std::weak_ptr<void>& while_alive, std::function<void()> callback);

  ~Service();

 private:
  static inline std::atomic<bool> in_forked_child_{false};
  Service();
  void loop();
  void run_posted();
  std::chrono::milliseconds run_timers();
  FileDescriptor open_listener(const Address& address);
  bool try_listen_at(const std::vector<Address>& addresses);
  void accept_from(int listener);
  void open_descriptor_socket();
  void accept_descriptor_request();

  struct ProcessWatch {
    FileDescriptor file;
    std::vector<std::pair<std::weak_ptr<void>, std::function<void()>>> callbacks;
  };

  std::vector<Interface> interfaces_;
  std::vector<Address> listen_addresses_;
  std::string descriptor_socket_;
  FileDescriptor epoll_, wake_, unix_listener_;
  std::map<std::string, FileDescriptor> listeners_;  // by address
  std::map<RealmName, std::weak_ptr<Realm>> realms_;
  std::vector<std::shared_ptr<Realm>> hosted_;  // whose directories are still needed
  std::map<int, std::shared_ptr<Handler>> handlers_;
  std::multimap<std::chrono::steady_clock::time_point, std::function<void()>> timers_;
  std::vector<std::shared_ptr<Connection>> connections_;
  // Accepted, the oldest first; some have made themselves known since.
  std::deque<std::weak_ptr<Connection>> strangers_;
  std::vector<std::shared_ptr<void>> held_;
  std::map<int, ProcessWatch> processes_;

  std::mutex mutex_;  // guards the two below
  std::vector<std::function<void()>> posted_;
  bool stopping_ = false;
  std::thread thread_;
};

/// Asks the process that listens at `socket` for a descriptor: of an object it shares under the realm (window
/// 0) or of a window. Blocks for at most some seconds; throws ncclSystemError.
/// Whether there is somebody at that socket: whether shared memory can be had from there.
bool reaches_descriptor_socket(const std::string& socket);
FileDescriptor fetch_descriptor(const std::string& socket, const Secret& secret, std::uint64_t window);

}  // namespace tutti
