// SPDX-License-Identifier: BSD-3-Clause
#include "launch/variables.hpp"

#include <charconv>
#include <cstdlib>

#include "base/error.hpp"
#include "base/settings.hpp"
#include "launch/launcher.hpp"

namespace tutti {
namespace {

ncclUniqueId from_hexadecimal(const std::string& digits) {
  ncclUniqueId id{};
  if (digits.size() != 2 * sizeof id.internal) refuse_variable("TUTTI_UNIQUE_ID", "has the wrong length");
  for (std::size_t i = 0; i < sizeof id.internal; ++i) {
    const char* begin = digits.data() + 2 * i;
    unsigned value = 0;
    if (std::from_chars(begin, begin + 2, value, 16).ptr != begin + 2)
      refuse_variable("TUTTI_UNIQUE_ID", "is not hexadecimal");
    id.internal[i] = static_cast<char>(value);
  }
  return id;
}

// RANK and WORLD_SIZE: set by `tutti run`, by torchrun, or by hand.
class VariablesLauncher : public Launcher {
 public:
  VariablesLauncher() {
    world_.rank = required_number("RANK");
    world_.size = required_number("WORLD_SIZE");
    check_rank("RANK", world_.rank, "WORLD_SIZE", world_.size);
    bool local = variable_number("LOCAL_RANK") || variable_number("LOCAL_WORLD_SIZE");
    world_.localRank = local ? required_number("LOCAL_RANK") : world_.rank;
    world_.localSize = local ? required_number("LOCAL_WORLD_SIZE") : world_.size;
    check_rank("LOCAL_RANK", world_.localRank, "LOCAL_WORLD_SIZE", world_.localSize);
    bool torch = !variable("TORCHELASTIC_RUN_ID").empty();
    world_.launcher = !variable("TUTTI_UNIQUE_ID").empty() ? "tutti run" : torch ? "torchrun" : "variables";
  }

  tuttiWorld_t world() override { return world_; }

  UniqueId unique_id() override {
    std::string given = setting_text("TUTTI_UNIQUE_ID");
    if (!given.empty()) return UniqueId::unpack(from_hexadecimal(given));
    if (world_.size == 1) return make_unique_id();
    std::string host = variable("MASTER_ADDR");
    if (host.empty())
      refuse_variable(
          "MASTER_ADDR",
          "is needed beside RANK and WORLD_SIZE: the host of rank 0. `tutti run`, torchrun, mpirun and "
          "srun need no variables");
    int port = required_number("MASTER_PORT");
    // torchrun's agent listens at MASTER_PORT itself when it says so.
    if (variable("TORCHELASTIC_USE_AGENT_STORE") == "True") ++port;
    // An attempt must not meet what is left of the one before.
    return agreed_unique_id(host, port,
                            variable("TORCHELASTIC_RUN_ID") + '/' + variable("TORCHELASTIC_RESTART_COUNT"));
  }

 private:
  tuttiWorld_t world_{};
};

}  // namespace

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::optional<int> variable_number(const char* name) {
  std::string text = variable(name);
  if (text.empty()) return std::nullopt;
  int value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= 1 << 30)
    refuse_variable(name, "is not a whole number, 0 or more");
  return value;
}

int required_number(const char* name) {
  std::optional<int> value = variable_number(name);
  if (!value) refuse_variable(name, "is needed beside those that are set");
  return *value;
}

void refuse_variable(const char* name, const std::string& what) {
  std::string value = variable(name);
  fail(ncclInvalidUsage, "the environment variable {}{} {}", name,
       value.empty() ? " (which is not set)" : '=' + value.substr(0, 80), what);
}

void check_rank(const char* rank_name, int rank, const char* size_name, int size) {
  if (rank >= size)
    refuse_variable(rank_name, fmt::format("does not go with {}={}: it must be below it", size_name, size));
}

std::unique_ptr<Launcher> find_variables_launcher() {
  bool found = !variable("RANK").empty() || !variable("WORLD_SIZE").empty();
  return found ? std::make_unique<VariablesLauncher>() : nullptr;
}

}  // namespace tutti
