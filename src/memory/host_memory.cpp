// SPDX-License-Identifier: BSD-3-Clause
#include "memory/host_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "base/error.hpp"

namespace tutti {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::byte* map_shared(int file, std::size_t bytes, bool huge_pages) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) fail_errno(fmt::format("mapping {} bytes of shared memory", bytes));
  // A wish: where the system has no huge pages for shared memory, small ones work as well.
  if (huge_pages && bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(data);
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) close(number_);
}

SharedMemory SharedMemory::create(const char* name, std::size_t bytes, bool huge_pages) {
  auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::size_t size = (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
  FileDescriptor file(memfd_create(name, MFD_CLOEXEC));
  if (!file) fail_errno("memfd_create");
  if (ftruncate(file.get(), static_cast<off_t>(size)) != 0)
    fail_errno(fmt::format("making {} bytes of shared memory", size));
  std::byte* data = map_shared(file.get(), size, huge_pages);
  return {std::move(file), data, size};
}

SharedMemory SharedMemory::attach(const FileDescriptor& file, bool huge_pages) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail_errno("fstat of shared memory");
  auto size = static_cast<std::size_t>(status.st_size);
  return {FileDescriptor(), map_shared(file.get(), size, huge_pages), size};
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::move(other.file_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

void SharedMemory::populate(std::size_t offset, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::size_t begin = offset / page * page;
  madvise(data_ + begin, offset + bytes - begin, MADV_POPULATE_WRITE);
#else
  (void)offset, (void)bytes;
#endif
}

struct WindowTable::Entries {
  struct Buffer {
    std::uint64_t window;
    SharedMemory memory;
  };
  mutable std::shared_mutex mutex;
  std::map<const std::byte*, Buffer> by_address;
  std::uint64_t last_window = 0;
  std::atomic<bool> empty = true;  // lets programs that never allocate here pass without a lock
};

WindowTable::WindowTable() : entries_(std::make_unique<Entries>()) {}
WindowTable::~WindowTable() = default;

WindowTable& WindowTable::instance() {
  static auto* table = new WindowTable;  // leaked: buffers may be freed by static destructors of the program
  return *table;
}

void* WindowTable::allocate(std::size_t bytes) {
  SharedMemory memory = SharedMemory::create("tutti-window", bytes, true);
  std::byte* address = memory.data();
  std::unique_lock lock(entries_->mutex);
  std::uint64_t window = ++entries_->last_window;
  entries_->by_address.emplace(address, Entries::Buffer{window, std::move(memory)});
  entries_->empty = false;
  return address;
}

void WindowTable::free(void* address) {
  std::unique_lock lock(entries_->mutex);
  auto found = entries_->by_address.find(static_cast<const std::byte*>(address));
  if (found == entries_->by_address.end())
    fail(ncclInvalidArgument, "ncclMemFree({}): not a buffer that ncclMemAlloc gave out (or freed already)",
         address);
  entries_->by_address.erase(found);
  entries_->empty = entries_->by_address.empty();
}

std::optional<WindowPlace> WindowTable::find(const void* address, std::size_t bytes) const {
  if (entries_->empty.load(std::memory_order_relaxed)) return std::nullopt;
  const auto* at = static_cast<const std::byte*>(address);
  std::shared_lock lock(entries_->mutex);
  auto after = entries_->by_address.upper_bound(at);
  if (after == entries_->by_address.begin()) return std::nullopt;
  const Entries::Buffer& buffer = std::prev(after)->second;
  auto offset = static_cast<std::size_t>(at - buffer.memory.data());
  if (offset + bytes > buffer.memory.size()) return std::nullopt;
  return WindowPlace{buffer.window, offset};
}

FileDescriptor WindowTable::duplicate(std::uint64_t window) const {
  std::shared_lock lock(entries_->mutex);
  for (const auto& [address, buffer] : entries_->by_address)
    if (buffer.window == window) return FileDescriptor(fcntl(buffer.memory.descriptor(), F_DUPFD_CLOEXEC, 0));
  return {};
}

}  // namespace tutti
