// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <poll.h>

#include <string>
#include <vector>

#include "memory/host_memory.hpp"

/// Passes on what ranks write, line by line, with the rank in front: "[2] hello". Lines of different ranks do
/// not mix.
class Labels {
 public:
  explicit Labels(int ranks) : width_(static_cast<int>(std::to_string(ranks - 1).size())) {}

  /// A pipe for what a rank writes to `file` (1 or 2): gives the end for the rank.
  tutti::FileDescriptor open(int rank, int file);
  void add_to(std::vector<pollfd>& waiting) const;
  /// Reads what there is without waiting and writes the lines that are whole.
  void pass_on();
  /// The same at the end: a last line that is not whole, too.
  void finish();
  /// Why something was not written, if so.
  const std::string& failure() const { return failure_; }

 private:
  struct Stream {
    tutti::FileDescriptor end;
    int rank = 0, file = 1;
    std::string pending;
  };
  void read(Stream& stream);
  void write_lines(Stream& stream, std::size_t end);
  void write_all(int file, const std::string& text);

  int width_;
  std::string failure_;
  std::vector<Stream> streams_;
};
