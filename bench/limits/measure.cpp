// SPDX-License-Identifier: BSD-3-Clause
#include "measure.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <climits>
#include <functional>
#include <memory>
#include <new>
#include <thread>

#include "algorithms/schedule.hpp"
#include "reduce/kernels.hpp"

namespace limits {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Pages as a program's own memory has them: anonymous, huge where the system gives that, present.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    madvise(data_, bytes, MADV_HUGEPAGE);
    std::fill_n(floats(), bytes / sizeof(float), 1.0F);
  }
  ~Buffer() { munmap(data_, bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  float* floats() const { return static_cast<float*>(data_); }

 private:
  void* data_;
  std::size_t bytes_;
};

using Buffers = std::vector<std::unique_ptr<Buffer>>;

Buffers buffers(int number, std::size_t bytes) {
  Buffers all;
  for (int i = 0; i < number; ++i) all.push_back(std::make_unique<Buffer>(bytes));
  return all;
}

void run_on(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Adds [begin, begin + count) of all inputs and stores it into all outputs, in pieces that stay in the first
// cache: the kernel stores to two places at once, to more by copies of the piece.
void add(const Buffers& inputs, const Buffers& outputs, std::size_t begin, std::size_t count,
         bool streaming) {
  static const tutti::ReduceFunction kSum =
      tutti::reduce_function(tutti::DataType::float32, tutti::OperatorKind::sum);
  constexpr std::size_t kPiece = 2048;
  std::vector<const void*> operands(inputs.size());
  for (std::size_t at = begin; at < begin + count; at += kPiece) {
    std::size_t n = std::min(kPiece, begin + count - at);
    for (std::size_t k = 0; k < inputs.size(); ++k) operands[k] = inputs[k]->floats() + at;
    float* first = outputs[0]->floats() + at;
    bool two = outputs.size() == 2;
    bool more = outputs.size() > 2;  // the piece itself is read again: into the cache with it
    kSum({.operands = operands.data(),
          .operand_count = static_cast<int>(operands.size()),
          .outputs = {first, two ? outputs[1]->floats() + at : nullptr},
          .output_count = two ? 2 : 1,
          .count = n,
          .streaming = {streaming && !more, streaming && !more}});
    for (std::size_t k = 1; more && k < outputs.size(); ++k)
      tutti::copy_streaming(outputs[k]->floats() + at, first, n * sizeof(float));
  }
}

void copy(const Buffer& from, const Buffer& to, std::size_t bytes, bool streaming) {
  if (streaming)
    tutti::copy_streaming(to.floats(), from.floats(), bytes);
  else
    std::copy_n(reinterpret_cast<const std::byte*>(from.floats()), bytes,
                reinterpret_cast<std::byte*>(to.floats()));
}

// Seconds per pass: the best of several samples, since a bound is what happens when nothing interferes.
// `pass(core)` runs on all cores at once; each sample starts and ends for all together.
double best_pass(const std::vector<int>& cores, const std::function<void(std::size_t)>& pass) {
  constexpr int kSamples = 7;
  constexpr double kSampleSeconds = 0.02;
  std::barrier together(static_cast<std::ptrdiff_t>(cores.size()));
  double best = 1e9;
  std::size_t passes = 1;
  auto work = [&](std::size_t core) {
    run_on(cores[core]);
    for (int sample = -1; sample < kSamples; ++sample) {  // the first finds out how many passes fill the time
      together.arrive_and_wait();
      auto start = Clock::now();
      for (std::size_t i = 0; i < passes; ++i) pass(core);
      together.arrive_and_wait();
      if (core == 0) {
        double once = seconds_since(start) / static_cast<double>(passes);
        if (sample < 0)
          passes = std::max<std::size_t>(1, static_cast<std::size_t>(kSampleSeconds / once));
        else
          best = std::min(best, once);
      }
      together.arrive_and_wait();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t core = 0; core < cores.size(); ++core) threads.emplace_back(work, core);
  for (std::thread& thread : threads) thread.join();
  return best;
}

Rate rate(std::size_t bytes, double seconds) { return static_cast<double>(bytes) / seconds / 1e9; }

struct alignas(64) Line {
  std::atomic<std::uint32_t> value{0};
};

void sleep_while(Line& line, std::uint32_t value) {
  while (line.value.load(std::memory_order_acquire) == value)
    syscall(SYS_futex, &line.value, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void set_and_wake(Line& line, std::uint32_t value) {
  line.value.store(value, std::memory_order_release);
  syscall(SYS_futex, &line.value, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// Microseconds of half a round trip, the best of several samples.
double half_round_trip(int first, int second, std::uint32_t trips,
                       const std::function<void(Line&, std::uint32_t)>& wait_while,
                       const std::function<void(Line&, std::uint32_t)>& set) {
  double best = 1e9;
  for (int sample = 0; sample < 7; ++sample) {
    Line there, back;
    std::thread echo([&] {
      run_on(second);
      for (std::uint32_t i = 0; i < trips; ++i) {
        wait_while(there, i);
        set(back, i + 1);
      }
    });
    std::thread caller([&] {
      run_on(first);
      auto start = Clock::now();
      for (std::uint32_t i = 0; i < trips; ++i) {
        set(there, i + 1);
        wait_while(back, i);
      }
      best = std::min(best, seconds_since(start) / trips / 2 * 1e6);
    });
    caller.join();
    echo.join();
  }
  return best;
}

}  // namespace

std::vector<int> processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> all;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) all.push_back(i);
  return all;
}

Rate one_core(std::size_t bytes, int operands, int outputs, bool streaming) {
  Buffers in = buffers(operands, bytes);
  Buffers out = buffers(outputs, bytes);
  double seconds = best_pass({processors()[0]}, [&](std::size_t) {
    if (operands == 1 && outputs == 1)
      copy(*in[0], *out[0], bytes, streaming);
    else
      add(in, out, 0, bytes / sizeof(float), streaming);
  });
  return rate(bytes * static_cast<std::size_t>(operands + outputs), seconds);
}

Rate all_cores_sharing(std::size_t bytes, bool streaming) {
  std::vector<int> cores = processors();
  auto n = static_cast<int>(cores.size());
  Buffers in = buffers(n, bytes);
  Buffers out = buffers(n, bytes);
  double seconds = best_pass(cores, [&](std::size_t core) {
    tutti::Chunk shard = tutti::chunk_of(bytes / sizeof(float), n, static_cast<int>(core));
    add(in, out, shard.offset, shard.count, streaming);
  });
  return rate(bytes * 2 * cores.size(), seconds);
}

Rate all_cores_copying(std::size_t bytes, bool streaming) {
  std::vector<int> cores = processors();
  Buffers in = buffers(static_cast<int>(cores.size()), bytes);
  Buffers out = buffers(static_cast<int>(cores.size()), bytes);
  double seconds = best_pass(cores, [&](std::size_t core) { copy(*in[core], *out[core], bytes, streaming); });
  return rate(bytes * 2 * cores.size(), seconds);
}

double line_hand_over() {
  std::vector<int> cores = processors();
  return half_round_trip(
      cores.front(), cores.back(), 20000,
      [](Line& line, std::uint32_t value) {
        // On one core the other thread must get its turn.
        for (int i = 1; line.value.load(std::memory_order_acquire) == value; ++i)
          if (i % 100000 == 0) sched_yield();
      },
      [](Line& line, std::uint32_t value) { line.value.store(value, std::memory_order_release); });
}

double futex_wake_up(bool one_core) {
  std::vector<int> cores = processors();
  return half_round_trip(cores.front(), one_core ? cores.front() : cores.back(), 2000, sleep_while,
                         set_and_wake);
}

}  // namespace limits
