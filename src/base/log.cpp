// SPDX-License-Identifier: BSD-3-Clause
#include "base/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "base/settings.hpp"

namespace tutti {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::string expand(std::string path) {
  for (auto [mark, value] : {std::pair{"%h", host_name()}, std::pair{"%p", std::to_string(getpid())}})
    for (std::size_t at = path.find(mark); at != std::string::npos; at = path.find(mark, at + value.size()))
      path.replace(at, 2, value);
  return path;
}

spdlog::level::level_enum level_of(const std::string& text) {
  if (text == "TRACE") return spdlog::level::trace;
  if (text == "INFO") return spdlog::level::info;
  if (text == "NONE") return spdlog::level::off;
  return spdlog::level::warn;  // WARN, VERSION, and whatever other libraries may understand by it
}

std::shared_ptr<spdlog::logger> make_logger() {
  std::string file = setting_text("NCCL_DEBUG_FILE");
  std::shared_ptr<spdlog::sinks::sink> sink;
  std::string complaint;
  try {
    if (!file.empty()) sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(expand(file));
  } catch (const spdlog::spdlog_ex& error) {
    complaint = error.what();
  }
  if (!sink) sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("tutti", sink);
  logger->set_pattern(host_name() + ":%P:%t NCCL %^%l%$ %v");
  logger->set_level(level_of(setting_text("NCCL_DEBUG")));
  logger->flush_on(spdlog::level::trace);
  if (!complaint.empty()) logger->warn("NCCL_DEBUG_FILE={}: {}; logging to stderr", file, complaint);
  return logger;
}

spdlog::logger& logger() {
  // Leaked on purpose: threads of the library may log while static objects are being destroyed.
  static auto* instance = new std::shared_ptr<spdlog::logger>(make_logger());
  return **instance;
}

spdlog::level::level_enum translate(LogLevel level) {
  switch (level) {
    case LogLevel::trace:
      return spdlog::level::trace;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
  }
  return spdlog::level::warn;
}

}  // namespace

bool log_enabled(LogLevel level) { return logger().should_log(translate(level)); }

void log_line(LogLevel level, const std::string& sentence) noexcept {
  try {
    logger().log(translate(level), sentence);
  } catch (...) {  // NOLINT(bugprone-empty-catch): see the declaration
  }
}

}  // namespace tutti
