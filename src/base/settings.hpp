// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

/// One environment variable that the library reads: the table of them is the single source for the code, for
/// `tutti settings` and for docs/settings.md.
struct Setting {
  const char* name;
  const char* default_value;
  const char* meaning;
};

/// Every setting, in the order of the documentation.
std::span<const Setting> all_settings();

/// The value in the environment, or the default. Read anew on each call: callers keep what they need, so that
/// a change applies to communicators that are made after it.
std::string setting_text(std::string_view name);

/// As a whole number >= 0; suffixes K, M, G (powers of 1024) are understood. Throws ncclInvalidArgument that
/// names the variable and its value when it is neither.
std::size_t setting_size(std::string_view name);

/// As a duration in seconds, fractions allowed; 0 means "no limit" wherever a limit is meant.
std::chrono::milliseconds setting_seconds(std::string_view name);

/// 1/0, true/false, yes/no, on/off.
bool setting_bool(std::string_view name);

}  // namespace tutti
