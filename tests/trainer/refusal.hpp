// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <string>

#include "model/tensor.hpp"

namespace trainer {

/// What an Error says that `action` throws; else "not refused".
inline std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "not refused";
}

}  // namespace trainer
