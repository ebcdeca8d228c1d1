// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/realm.hpp"

#include "bootstrap/control.hpp"
#include "bootstrap/directory.hpp"

namespace tutti {

void Realm::first_message(const std::shared_ptr<Connection>& connection, std::uint8_t type,
                          WireReader& message) {
  if (static_cast<MessageType>(type) == MessageType::register_rank && directory) {
    directory->add(connection, message);
    return;
  }
  bool links = static_cast<MessageType>(type) == MessageType::link;
  if (links || static_cast<MessageType>(type) == MessageType::attach) {
    int to = message.get<int>();
    int from = message.get<int>();
    for (auto& weak : endpoints)
      if (auto endpoint = weak.lock(); endpoint && endpoint->rank() == to)
        return links ? endpoint->accept_link(connection, from, message)
                     : endpoint->accept_child(connection, from);
  }
  connection->close();
}

void Realm::share(std::weak_ptr<void> object, int descriptor) {
  std::lock_guard lock(mutex_);
  object_ = std::move(object);
  descriptor_ = descriptor;
}

std::shared_ptr<void> Realm::shared_object() {
  std::lock_guard lock(mutex_);
  return object_.lock();
}

int Realm::shared_descriptor() {
  std::lock_guard lock(mutex_);
  return object_.expired() ? -1 : descriptor_;
}

}  // namespace tutti
