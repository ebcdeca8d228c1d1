// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

/// `tutti run -n N program ...`: N processes of one job on this host. `command`: the program and its
/// arguments.
void add_run(CLI::App& app, const std::vector<std::string>& command, int& exit_code);

/// Where in argv the program begins: its own flags are not ours to parse.
int run_command_begin(int argc, char** argv);
