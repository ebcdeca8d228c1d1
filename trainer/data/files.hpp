// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>

namespace trainer {

/// The content of a file that `option` names. Throws Error when it is missing, a folder, unreadable or empty.
std::string read_file(const std::string& option, const std::string& path);

}  // namespace trainer
