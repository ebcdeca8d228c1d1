// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/format.h>

#include <string>
#include <utility>

namespace tutti {

enum class LogLevel { trace, info, warning };

/// Whether NCCL_DEBUG lets this level through. Cheap enough to guard the making of a message.
bool log_enabled(LogLevel level);

/// Writes "host:pid:tid NCCL LEVEL sentence", as NCCL does, to stderr or NCCL_DEBUG_FILE. Thread-safe; never
/// throws (a log that cannot be written is no reason to fail).
void log_line(LogLevel level, const std::string& sentence) noexcept;

template <class... Arguments>
void log_info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_enabled(LogLevel::info))
    log_line(LogLevel::info, fmt::format(format, std::forward<Arguments>(arguments)...));
}

template <class... Arguments>
void log_warning(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_enabled(LogLevel::warning))
    log_line(LogLevel::warning, fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace tutti
