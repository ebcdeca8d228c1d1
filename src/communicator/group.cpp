// SPDX-License-Identifier: BSD-3-Clause
#include "communicator/group.hpp"

#include <algorithm>
#include <mutex>
#include <thread>

#include "base/thread.hpp"

namespace tutti {
namespace {

// Tickets of a group with several communicators are drawn at once, so that two threads cannot each hold the
// turn that the other one waits for.
std::mutex& issue_mutex() {
  static std::mutex mutex;
  return mutex;
}

void run_side_by_side(const std::vector<std::function<void()>>& jobs) {
  if (jobs.size() == 1) return jobs[0]();
  std::mutex mutex;
  std::exception_ptr first_error;
  std::vector<std::thread> threads;
  for (const auto& job : jobs)
    threads.push_back(start_thread("tutti-join", [&] {
      try {
        job();
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
      }
    }));
  for (std::thread& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace

Group& Group::of_this_thread() {
  thread_local Group group;
  return group;
}

void Group::note_error(const Error& error) {
  if (!error_) error_ = std::make_exception_ptr(error);
}

void Group::add(std::shared_ptr<Communicator> communicator, HostStream* stream, const Operation& operation) {
  auto end = entries_.begin() + static_cast<std::ptrdiff_t>(used_);
  auto entry = std::find_if(entries_.begin(), end,
                            [&](const Entry& e) { return e.launch.communicator == communicator; });
  if (entry == end) {
    if (used_ == entries_.size()) entries_.emplace_back();
    entry = entries_.begin() + static_cast<std::ptrdiff_t>(used_++);
    entry->launch.communicator = std::move(communicator);
    entry->stream = stream;
  }
  if (entry->stream != stream)
    fail(ncclInvalidUsage,
         "the calls of a group on one communicator must use one stream; two were given on rank {}",
         entry->launch.communicator->rank());
  entry->launch.operations.push_back(operation);
}

void Group::check_sends_to_self(const Launch& launch) const {
  int rank = launch.communicator->rank();
  std::vector<const Operation*> sends, receives;
  for (const Operation& operation : launch.operations) {
    if (operation.root != rank) continue;
    if (operation.collective == Collective::send) sends.push_back(&operation);
    if (operation.collective == Collective::receive) receives.push_back(&operation);
  }
  if (sends.size() != receives.size())
    fail(ncclInvalidUsage,
         "rank {} sends {} messages to itself and receives {} from itself in one group; they must be as many",
         rank, sends.size(), receives.size());
}

void Group::reset() {
  for (std::size_t i = 0; i < used_; ++i) {
    entries_[i].launch.communicator.reset();
    entries_[i].launch.operations.clear();
  }
  used_ = 0;
  jobs_.clear();
  error_ = nullptr;
}

void Group::end() {
  if (depth_ == 0) fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--depth_ > 0) return;
  // The entries stay in place, for the next group to use their memory again; nothing here calls a group.
  struct Reset {
    Group& group;
    ~Reset() { group.reset(); }
  } at_the_end{*this};
  if (error_) std::rethrow_exception(error_);
  std::span<Entry> entries(entries_.data(), used_);
  for (const Entry& entry : entries) check_sends_to_self(entry.launch);
  if (!jobs_.empty()) run_side_by_side(jobs_);
  launch(entries);
}

void Group::launch(std::span<Entry> entries) {
  if (entries.size() == 1) {
    entries[0].launch.ticket = entries[0].launch.communicator->issue();
  } else {
    std::lock_guard lock(issue_mutex());
    for (Entry& entry : entries) entry.launch.ticket = entry.launch.communicator->issue();
  }
  if (entries.size() == 1 && entries[0].stream == nullptr) return execute(entries[0].launch);
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::less<HostStream*>()(b.stream, a.stream);  // those without a stream last: they block
  });
  for (std::size_t i = 0; i < entries.size();) {
    HostStream* stream = entries[i].stream;
    std::vector<Launch> launches;
    for (; i < entries.size() && entries[i].stream == stream; ++i)
      launches.push_back(std::move(entries[i].launch));
    if (stream == nullptr)
      execute(launches);
    else
      stream->enqueue([launches = std::move(launches)] { execute(launches); });
  }
}

void submit(const std::shared_ptr<Communicator>& communicator, HostStream* stream,
            const Operation& operation) {
  bool to_self = operation.root == communicator->rank() && is_point_to_point(operation.collective);
  if (to_self)
    fail(ncclInvalidUsage,
         "rank {} sends to or receives from itself outside a group: put the send and its receive between "
         "ncclGroupStart and ncclGroupEnd",
         communicator->rank());
  if (stream == nullptr) return execute(*communicator, operation);
  std::vector<Launch> launches(1);
  launches[0].ticket = communicator->issue();
  launches[0].communicator = communicator;
  launches[0].operations.push_back(operation);
  stream->enqueue([launches = std::move(launches)] { execute(launches); });
}

}  // namespace tutti
