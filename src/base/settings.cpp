// SPDX-License-Identifier: BSD-3-Clause
#include "base/settings.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/error.hpp"

namespace tutti {
namespace {

constexpr std::array kSettings{
    Setting{
        "NCCL_DEBUG", "WARN",
        "What is logged to stderr: NONE, VERSION, WARN, INFO or TRACE. Errors go to ncclGetLastError in any "
        "case."},
    Setting{"NCCL_DEBUG_FILE", "",
            "Log to this file instead of stderr; %h becomes the host name and %p the process id."},
    Setting{
        "NCCL_ALGO", "",
        "Algorithms that may be chosen, by name: `ring,tree`; `^ring` for all but these; "
        "`allreduce:direct;broadcast:ring` per collective. A collective for which none of them exists uses "
        "its own choice. Must be the same on all ranks."},
    Setting{
        "NCCL_SOCKET_IFNAME", "",
        "Interfaces for the rendezvous, the control network and data between hosts: prefixes `eth,ib`, "
        "`=eth0` "
        "exactly, `^docker` to exclude. Several are used side by side. Empty: the fastest that are up; the "
        "loopback and bridges of container engines only where there is nothing else."},
    Setting{"NCCL_SOCKET_FAMILY", "",
            "AF_INET or AF_INET6: only addresses of that family. Empty: IPv4 where there is one."},
    Setting{"NCCL_NSOCKS_PERTHREAD", "1",
            "TCP connections between two ranks, for each lane and each network that joins their hosts; long "
            "messages are striped over them (1 to 16)."},
    Setting{"TUTTI_TCP_CONGESTION", "auto",
            "Congestion control of the TCP connections that carry data: system, a name that the kernel knows "
            "(cubic, reno), "
            "or auto: the system's, but between hosts of one network cubic (or reno, where cubic is not "
            "allowed) in place of bbr."},
    Setting{"NCCL_SHM_DISABLE", "0",
            "1: ranks share no memory, not even in one process; all they exchange goes by TCP."},
    Setting{
        "NCCL_HOSTID", "",
        "Stands for the identity of this machine: ranks with different ones are on different hosts. Empty: "
        "the kernel's boot id."},
    Setting{"NCCL_COMM_ID", "",
            "host:port of the rendezvous, the same for all processes; the one that joins as rank 0 serves "
            "it. Empty: "
            "ncclGetUniqueId picks a port."},
    Setting{"TUTTI_JOB_SECRET", "",
            "Secret that ranks must share when the rendezvous is found by NCCL_COMM_ID, MASTER_ADDR or "
            "Slurm's job "
            "instead of by an id that carries its own."},
    Setting{
        "TUTTI_UNIQUE_ID", "",
        "Set by `tutti run`: the id (in hexadecimal) with which tutti::World joins the job's communicator."},
    Setting{"TUTTI_JOIN_PORT", "",
            "Port at which rank 0 meets the others where no id is handed around (torchrun, RANK and "
            "WORLD_SIZE by hand, srun "
            "without PMIx). Empty: the first that is free of eight from MASTER_PORT on (MASTER_PORT+1 under "
            "torchrun, whose "
            "store has that), or of eight above 61000 that follow from Slurm's job and step."},
    Setting{"TUTTI_INIT_TIMEOUT", "120",
            "Seconds that all ranks have to join a communicator (0: no limit); then every rank fails with "
            "the list "
            "of those that are missing."},
    Setting{"TUTTI_TIMEOUT", "0",
            "Seconds that an operation may stand still before it fails and breaks the communicator (0: no "
            "limit)."},
    Setting{
        "TUTTI_PEER_TIMEOUT", "60",
        "Seconds after which a rank that nothing comes from any more (stopped, or its host cut off) is given "
        "up and the communicator broken (0: never, as for debugging)."},
    Setting{"TUTTI_STALL_WARNING", "10",
            "Seconds that an operation may stand still before it is logged, once, who waits for whom (0: "
            "never)."},
    Setting{
        "TUTTI_SPIN", "auto",
        "Polls before a waiting rank sleeps; auto: 4000 if every rank of this machine can have a core, else "
        "1000 (4 if there are ranks on other hosts), and fewer when another rank could use this core."},
    Setting{"TUTTI_SLICE", "auto",
            "Most bytes of one message between ranks (4K to 4M); longer ones are cut. auto: by the number of "
            "ranks "
            "and by whether they share their memory. Must be the same on all ranks."},
    Setting{"TUTTI_WINDOWS", "1",
            "Whether buffers of ncclMemAlloc are read and written in place by ranks of other processes (0: "
            "staged like others)."},
    Setting{"TUTTI_SINGLE_COPY", "auto",
            "Bytes of a message from which its receiver copies it straight out of the sender's process "
            "(process_vm_readv) instead of through shared memory: auto, never or a size. Must be the same on "
            "all ranks."},
    Setting{"TUTTI_STREAMING", "auto",
            "Stores that bypass the cache: auto (outputs beyond the last-level caches; and where other ranks "
            "read "
            "what is stored, if trials now and then show it to be faster), always or never."},
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

[[noreturn]] void refuse(std::string_view name, const std::string& value, const char* wanted) {
  fail(ncclInvalidArgument, "{}={}: expected {}; unset it for the default", name, value, wanted);
}

}  // namespace

std::span<const Setting> all_settings() { return kSettings; }

std::string setting_text(std::string_view name) {
  auto found =
      std::find_if(kSettings.begin(), kSettings.end(), [&](const Setting& s) { return s.name == name; });
  if (found == kSettings.end()) fail(ncclInternalError, "the setting {} is not in the table", name);
  const char* value = std::getenv(found->name);
  return value != nullptr && *value != '\0' ? value : found->default_value;
}

std::size_t setting_size(std::string_view name) {
  std::string text = setting_text(name);
  std::size_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string suffix(end, static_cast<const char*>(text.data() + text.size()));
  unsigned shift = 0;
  if (suffix == "K" || suffix == "k")
    shift = 10;
  else if (suffix == "M" || suffix == "m")
    shift = 20;
  else if (suffix == "G" || suffix == "g")
    shift = 30;
  else if (!suffix.empty())
    error = std::errc::invalid_argument;
  if (error != std::errc() || number > (~std::size_t{0} >> shift))
    refuse(name, text, "a whole number, with K, M or G behind it if wanted");
  return number << shift;
}

std::chrono::milliseconds setting_seconds(std::string_view name) {
  std::string text = setting_text(name);
  char* end = nullptr;
  double seconds = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0' || !std::isfinite(seconds) || seconds < 0 || seconds > 1e9)
    refuse(name, text, "a number of seconds, 0 or more");
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

bool setting_bool(std::string_view name) {
  std::string text = setting_text(name);
  std::string value = lower(text);
  if (value == "1" || value == "true" || value == "yes" || value == "on") return true;
  if (value == "0" || value == "false" || value == "no" || value == "off") return false;
  refuse(name, text, "1 or 0");
}

}  // namespace tutti
