// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include <fstream>
#include <string>

namespace trainer {

/// A file that an option asks for and that is written when the run ends: opened beside its name at the
/// beginning, so that a run does not find at its end that it cannot be written, and renamed when it is whole.
/// What is not a plain file (/dev/stdout) is written as it is.
class OutputFile {
 public:
  /// Throws Error that names the option.
  OutputFile(std::string option, std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// The whole text. Throws Error.
  void finish(const std::string& text);
  const std::filesystem::path& path() const { return path_; }

 private:
  void require(bool good) const;

  std::string option_;
  std::filesystem::path path_, unfinished_;
  std::ofstream file_;
};

/// The page in the folder that --report asks for, which is made. Throws Error.
std::filesystem::path report_file(const std::string& folder);

}  // namespace trainer
