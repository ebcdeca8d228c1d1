// SPDX-License-Identifier: BSD-3-Clause
//
// src/memory: memory that ranks share: anonymous files (memfd) that leave no name behind, their mappings, and
// the table of buffers that ncclMemAlloc gave out.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace tutti {

/// A file descriptor that is closed with its owner.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor();
  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

/// Zeroed memory of a size that was rounded up to whole pages, shared through a memfd.
class SharedMemory {
 public:
  /// `name` only shows in /proc/PID/maps. Huge pages suit memory that will be used from end to end; in sparse
  /// memory they would be wasted.
  static SharedMemory create(const char* name, std::size_t bytes, bool huge_pages);
  /// Maps what another process created; the descriptor is no longer needed afterwards.
  static SharedMemory attach(const FileDescriptor& file, bool huge_pages);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  /// Makes the pages of a part present for writing; where the kernel cannot (before Linux 5.14), they come
  /// one by one when they are used.
  void populate(std::size_t offset, std::size_t bytes);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// To hand to another process; -1 for what was attached.
  int descriptor() const { return file_.get(); }

 private:
  SharedMemory(FileDescriptor file, std::byte* data, std::size_t size)
      : file_(std::move(file)), data_(data), size_(size) {}
  FileDescriptor file_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A place inside a buffer of ncclMemAlloc.
struct WindowPlace {
  std::uint64_t window = 0;  ///< number of the buffer, never used again in this process
  std::size_t offset = 0;
};

/// The buffers of ncclMemAlloc in this process. Thread-safe.
class WindowTable {
 public:
  static WindowTable& instance();
  void* allocate(std::size_t bytes);
  /// Throws ncclInvalidArgument when `address` is not the start of an allocated buffer.
  void free(void* address);
  /// Where [address, address + bytes) lies, if it is wholly inside one buffer.
  std::optional<WindowPlace> find(const void* address, std::size_t bytes) const;
  /// A duplicate of the buffer's descriptor; none if it has been freed.
  FileDescriptor duplicate(std::uint64_t window) const;

 private:
  struct Entries;
  WindowTable();
  ~WindowTable();
  std::unique_ptr<Entries> entries_;
};

}  // namespace tutti
