// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/secret.hpp"
#include "bootstrap/wire.hpp"

namespace tutti {

class Connection;
class Directory;
class Control;

/// What one process holds for one secret: the directory of a rendezvous, the control endpoints of ranks, and
/// an object (the host segment) that ranks of the same host share. All but the shared object belong to the
/// service thread.
class Realm {
 public:
  explicit Realm(const Secret& secret) : secret_(secret), name_(RealmName::of(secret)) {}
  const Secret& secret() const { return secret_; }
  const RealmName& name() const { return name_; }

  /// The first message of an authenticated connection decides who takes it: the directory or a rank's
  /// endpoint.
  void first_message(const std::shared_ptr<Connection>& connection, std::uint8_t type, WireReader& message);

  std::shared_ptr<Directory> directory;
  std::vector<std::weak_ptr<Control>> endpoints;  ///< the newest first

  /// Thread-safe: the object and the descriptor by which other processes get at it.
  void share(std::weak_ptr<void> object, int descriptor);
  std::shared_ptr<void> shared_object();
  int shared_descriptor();

 private:
  Secret secret_;
  RealmName name_;
  std::mutex mutex_;
  std::weak_ptr<void> object_;
  int descriptor_ = -1;
};

}  // namespace tutti
