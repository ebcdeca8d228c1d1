// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Catch2 2 and 3 differ in the header's name only, for what is used here.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
#include <string>

/// Whether a message says all of these things.
inline bool says(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    if (text.find(part) == std::string::npos) {
      WARN("\"" << text << "\" does not say \"" << part << "\"");
      return false;
    }
  return true;
}
