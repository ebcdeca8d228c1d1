// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/congestion.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>

#include "base/error.hpp"
#include "base/settings.hpp"
#include "bootstrap/interfaces.hpp"
#include "bootstrap/service.hpp"
#include "memory/host_memory.hpp"

namespace tutti {
namespace {

constexpr const char* kSetting = "TUTTI_TCP_CONGESTION";

FileDescriptor new_socket() { return FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

// The one that a new socket has.
std::string control_of_system() {
  std::array<char, 16> name{};
  socklen_t size = name.size() - 1;
  FileDescriptor fresh = new_socket();
  getsockopt(fresh.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size);
  return name.data();
}

bool set_control(int socket, const std::string& name) {
  return setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) ==
         0;
}

// What collectives send are bursts with silence between them. Of these BBR makes a wrong model of the path
// and paces by it: measured in docs/network.md. On the way through routers the system's choice has its
// reasons.
bool is_misled(const std::string& control) { return control.starts_with("bbr"); }

bool is_within_network(const Address& peer) { return is_direct(peer, Service::instance().interfaces()); }

// Refusals are left to check_congestion_setting().
void choose(int socket, bool within_network) {
  std::string wanted = setting_text(kSetting);
  if (wanted == "system") return;
  if (wanted != "auto") {
    set_control(socket, wanted);
  } else if (within_network && is_misled(control_of_system())) {
    if (!set_control(socket, "cubic")) set_control(socket, "reno");  // which every kernel lets everyone use
  }
}

}  // namespace

void check_congestion_setting() {
  std::string wanted = setting_text(kSetting);
  FileDescriptor fresh = new_socket();
  if (wanted == "system" || wanted == "auto" || !fresh || set_control(fresh.get(), wanted)) return;
  fail(ncclInvalidUsage,
       "{}={}: the kernel refuses it ({}); `sysctl net.ipv4.tcp_allowed_congestion_control` lists what it "
       "takes",
       kSetting, wanted, errno_text(errno));
}

void choose_congestion_control(int socket, const Address& peer) { choose(socket, is_within_network(peer)); }

void choose_congestion_control(int listener) { choose(listener, true); }

void review_congestion_control(int socket) {
  if (setting_text(kSetting) != "auto" || is_within_network(Address::of_peer(socket))) return;
  set_control(socket, control_of_system());
}

}  // namespace tutti
