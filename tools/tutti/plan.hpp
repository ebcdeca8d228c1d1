// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <CLI/CLI.hpp>

/// `tutti plan COLLECTIVE`: what would be chosen, what the alternatives cost, and the schedule.
void add_plan(CLI::App& app, int& exit_code);
