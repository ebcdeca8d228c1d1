// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <optional>
#include <string>

namespace tutti {

/// Of the environment; empty when it is not set.
std::string variable(const char* name);

/// Throw ncclInvalidUsage when the variable is set and not a whole number below 2^30; required_number also
/// when it is not set.
std::optional<int> variable_number(const char* name);
int required_number(const char* name);

/// Throws ncclInvalidUsage: "the environment variable NAME=value <what>".
[[noreturn]] void refuse_variable(const char* name, const std::string& what);

/// Throws ncclInvalidUsage unless the rank that one variable gives is below the size that the other gives.
void check_rank(const char* rank_name, int rank, const char* size_name, int size);

}  // namespace tutti
