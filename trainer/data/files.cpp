// SPDX-License-Identifier: BSD-3-Clause
#include "data/files.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "model/tensor.hpp"

namespace trainer {

std::string read_file(const std::string& option, const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw Error(fmt::format("{} {} is a folder: name a file in it", option, path));
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw Error(fmt::format("cannot read {} {}: {}", option, path, std::strerror(errno)));
  std::string content((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (stream.bad()) throw Error(fmt::format("reading {} {} failed: {}", option, path, std::strerror(errno)));
  if (content.empty()) throw Error(fmt::format("{} {} is empty", option, path));
  return content;
}

}  // namespace trainer
