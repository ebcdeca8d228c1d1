// SPDX-License-Identifier: BSD-3-Clause
#include "labels.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/error.hpp"

namespace {

// A line that does not end is passed on in pieces of this length.
constexpr std::size_t kLongestLine = 64 << 10;

}  // namespace

tutti::FileDescriptor Labels::open(int rank, int file) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) tutti::fail_errno("a pipe for the output of a rank");
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  streams_.push_back({tutti::FileDescriptor(ends[0]), rank, file, ""});
  return tutti::FileDescriptor(ends[1]);
}

void Labels::add_to(std::vector<pollfd>& waiting) const {
  for (const Stream& stream : streams_)
    if (stream.end) waiting.push_back({stream.end.get(), POLLIN, 0});
}

void Labels::pass_on() {
  for (Stream& stream : streams_)
    if (stream.end) read(stream);
}

void Labels::finish() {
  pass_on();
  for (Stream& stream : streams_) write_lines(stream, stream.pending.size());
}

void Labels::read(Stream& stream) {
  std::array<char, 65536> buffer;
  ssize_t got = 0;
  while ((got = ::read(stream.end.get(), buffer.data(), buffer.size())) > 0) {
    stream.pending.append(buffer.data(), static_cast<std::size_t>(got));
    std::size_t whole = stream.pending.rfind('\n') + 1;  // npos + 1 is 0
    if (whole == 0 && stream.pending.size() >= kLongestLine) whole = stream.pending.size();
    write_lines(stream, whole);
  }
  if (got == 0) {
    write_lines(stream, stream.pending.size());
    stream.end = {};
  }
}

void Labels::write_lines(Stream& stream, std::size_t end) {
  std::string text;
  for (std::size_t at = 0; at < end;) {
    std::size_t next = std::min(stream.pending.find('\n', at), end - 1) + 1;
    text += fmt::format("[{:>{}}] ", stream.rank, width_);
    text.append(stream.pending, at, next - at);
    if (text.back() != '\n') text += '\n';
    at = next;
  }
  stream.pending.erase(0, end);
  write_all(stream.file, text);
}

// The ranks go on when nobody takes their output any more.
void Labels::write_all(int file, const std::string& text) {
  for (std::size_t at = 0; at < text.size() && failure_.empty();) {
    ssize_t written = write(file, text.data() + at, text.size() - at);
    if (written < 0 && errno != EINTR) failure_ = tutti::errno_text(errno);
    if (written > 0) at += static_cast<std::size_t>(written);
  }
}
