// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.hpp"

#include <cerrno>
#include <system_error>

namespace tutti {

std::string errno_text(int error_number) {
  std::string text = std::generic_category().message(error_number);
  return error_number == EMFILE ? text + " (see `ulimit -n`)" : text;
}

void fail_errno(const std::string& what) {
  int saved = errno;
  throw Error(ncclSystemError, what + ": " + errno_text(saved));
}

}  // namespace tutti
