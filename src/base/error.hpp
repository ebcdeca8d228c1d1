// SPDX-License-Identifier: BSD-3-Clause
//
// src/base: what every room stands on: errors, the log, the settings. Nothing here knows of ranks.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "nccl.h"

namespace tutti {

/// What went wrong inside the library: the code for the C API and one sentence for a person that says what
/// was asked, what was found and, where that helps, what to do.
class Error : public std::runtime_error {
 public:
  Error(ncclResult_t code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  ncclResult_t code() const { return code_; }

 private:
  ncclResult_t code_;
};

template <class... Arguments>
[[noreturn]] void fail(ncclResult_t code, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw Error(code, fmt::format(format, std::forward<Arguments>(arguments)...));
}

/// "Connection refused" and the like for an errno value. Thread-safe.
std::string errno_text(int error_number);

/// Throws ncclSystemError "<what>: <errno in words>".
[[noreturn]] void fail_errno(const std::string& what);

}  // namespace tutti
