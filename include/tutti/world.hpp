// SPDX-License-Identifier: BSD-3-Clause
//
// Joining the job that this process was started in: by `tutti run`, by torchrun (or whatever sets its
// variables), or alone as a world of one process.
#ifndef TUTTI_WORLD_HPP_
#define TUTTI_WORLD_HPP_

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "communicator.hpp"

namespace tutti {

/// What the environment says of this process's job.
class World {
 public:
  /// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, and for the rendezvous TUTTI_UNIQUE_ID (of `tutti
  /// run`) or MASTER_ADDR and MASTER_PORT (of torchrun). Without RANK and WORLD_SIZE: a world of one. Throws
  /// ncclInvalidUsage that names the variable when one is missing or wrong. Communicates nothing.
  static World from_environment() {
    World world;
    std::optional<int> rank = number("RANK");
    std::optional<int> size = number("WORLD_SIZE");
    if (!rank && !size) return world;
    if (!rank || !size) wrong(rank ? "WORLD_SIZE" : "RANK", "is not set, but its companion is");
    world.rank_ = *rank;
    world.size_ = *size;
    if (*size < 1 || *rank < 0 || *rank >= *size) wrong("RANK", "must be between 0 and WORLD_SIZE - 1");
    world.local_rank_ = number("LOCAL_RANK").value_or(*rank);
    world.local_size_ = number("LOCAL_WORLD_SIZE").value_or(*size);
    return world;
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }

  /// The id of a communicator over the whole world, or over `threads` ranks of every process. One
  /// communicator can be made with it; further ones come from ncclCommSplit.
  ncclUniqueId unique_id() const {
    ncclUniqueId id{};
    const char* given = std::getenv("TUTTI_UNIQUE_ID");
    if (given != nullptr && *given != '\0') {
      if (std::strlen(given) != 2 * sizeof id.internal) wrong("TUTTI_UNIQUE_ID", "has the wrong length");
      for (std::size_t i = 0; i < sizeof id.internal; ++i) {
        std::string digits(given + 2 * i, 2);
        char* end = nullptr;
        id.internal[i] = static_cast<char>(std::strtol(digits.c_str(), &end, 16));
        if (*end != '\0') wrong("TUTTI_UNIQUE_ID", "is not hexadecimal");
      }
      return id;
    }
    if (size_ == 1) {
      check(ncclGetUniqueId(&id));
      return id;
    }
    const char* host = std::getenv("MASTER_ADDR");
    if (host == nullptr) wrong("MASTER_ADDR", "is not set; start the program with `tutti run` or torchrun");
    std::optional<int> port = number("TUTTI_JOIN_PORT");
    if (!port) {
      port = number("MASTER_PORT");
      if (!port) wrong("MASTER_PORT", "is not set");
      // torchrun's agent listens at MASTER_PORT itself when it says so.
      const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
      if (agent != nullptr && std::strcmp(agent, "True") == 0) port = *port + 1;
    }
    const char* run_id = std::getenv("TORCHELASTIC_RUN_ID");
    const char* secret = std::getenv("TUTTI_JOB_SECRET");
    std::string text = std::string(run_id != nullptr ? run_id : "") + '/' + (secret != nullptr ? secret : "");
    check(tuttiUniqueIdAt(&id, (std::string(host) + ':' + std::to_string(*port)).c_str(), text.c_str()));
    return id;
  }

  /// A communicator of all processes, one rank each. Blocks until all have joined.
  Communicator communicator() const { return Communicator(unique_id(), size_, rank_); }

 private:
  [[noreturn]] static void wrong(const char* variable, const char* what) {
    throw Exception(ncclInvalidUsage, std::string("the environment variable ") + variable + ' ' + what);
  }
  static std::optional<int> number(const char* variable) {
    const char* text = std::getenv(variable);
    if (text == nullptr || *text == '\0') return std::nullopt;
    char* end = nullptr;
    long value = std::strtol(text, &end, 10);
    if (*end != '\0' || value < 0 || value > 65536) wrong(variable, "is not a number from 0 to 65536");
    return static_cast<int>(value);
  }

  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
};

}  // namespace tutti

#endif
