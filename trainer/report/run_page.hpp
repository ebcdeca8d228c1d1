// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <vector>

#include "report/history.hpp"
#include "report/measurement.hpp"

namespace trainer {

/// The report of a run: a page of HTML that needs no other file. `ranks`: by rank.
std::string run_page(const Options& options, const History& history, const std::vector<Measurement>& ranks);

}  // namespace trainer
