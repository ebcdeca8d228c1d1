// SPDX-License-Identifier: BSD-3-Clause
#include "app/output_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "model/tensor.hpp"

namespace trainer {

OutputFile::OutputFile(std::string option, std::filesystem::path path)
    : option_(std::move(option)), path_(std::move(path)) {
  std::error_code error;
  if (std::filesystem::is_directory(path_, error))
    throw Error(fmt::format("cannot write {} {}: it is a folder", option_, path_.string()));
  if (std::filesystem::exists(path_, error) && !std::filesystem::is_regular_file(path_, error)) {
    file_.open(path_);
  } else {
    unfinished_ = path_;
    unfinished_ += ".unfinished";
    file_.open(unfinished_);
  }
  require(file_.is_open());
}

OutputFile::~OutputFile() {
  file_.close();
  std::error_code error;
  if (!unfinished_.empty()) std::filesystem::remove(unfinished_, error);
}

void OutputFile::finish(const std::string& text) {
  file_ << text << std::flush;
  require(file_.good());
  file_.close();
  if (unfinished_.empty()) return;
  std::error_code error;
  std::filesystem::rename(unfinished_, path_, error);
  if (error) throw Error(fmt::format("cannot write {} {}: {}", option_, path_.string(), error.message()));
  unfinished_.clear();
}

void OutputFile::require(bool good) const {
  if (!good)
    throw Error(fmt::format("cannot write {} {}: {}", option_, path_.string(), std::strerror(errno)));
}

std::filesystem::path report_file(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(fmt::format("cannot make the folder of --report {}: {}", folder, error.message()));
  return std::filesystem::path(folder) / "index.html";
}

}  // namespace trainer
