// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "../launch.hpp"
#include "harness.hpp"
#include "tutti/communicator.hpp"
#include "tutti/world.hpp"

namespace {

class Tutti final : public peers::Library {
 public:
  Tutti(tutti::Communicator communicator, bool windows)
      : communicator_(std::move(communicator)), windows_(windows) {}
  ~Tutti() override {
    for (void* memory : buffers_) ncclMemFree(memory);
  }

  std::string name() const override { return "Tutti"; }
  int rank() const override { return communicator_.rank(); }
  int ranks() const override { return communicator_.size(); }
  bool has(bench::Kind) const override { return true; }

  void run(bench::Kind kind, const float* send, float* receive, std::size_t count) override {
    bench::Problem problem{kind, ncclFloat32, values::Op::sum, 0, rank(), ranks(), count, false};
    bench::Buffers buffers{reinterpret_cast<std::byte*>(const_cast<float*>(send)),
                           reinterpret_cast<std::byte*>(receive)};
    tutti::check(bench::launch(problem, buffers, ncclSum, communicator_.get()));
  }
  double largest(double value) override {
    tutti::check(ncclAllReduce(&value, &value, 1, ncclFloat64, ncclMax, communicator_.get(), nullptr));
    return value;
  }
  void* allocate(std::size_t bytes) override {
    if (!windows_) return Library::allocate(bytes);
    void* memory = nullptr;
    tutti::check(ncclMemAlloc(&memory, bytes));
    buffers_.push_back(memory);
    return memory;
  }

 private:
  tutti::Communicator communicator_;
  bool windows_;
  std::vector<void*> buffers_;
};

int as_threads(int ranks, const peers::Options& options, bool windows) {
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
  tutti::check(ncclCommInitAll(comms.data(), ranks, nullptr));
  std::vector<std::thread> threads;
  std::vector<int> codes(comms.size(), 1);
  for (std::size_t r = 0; r < comms.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        Tutti library(tutti::Communicator(comms[r]), windows);
        codes[r] = peers::measure(library, options);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %zu: %s\n", r, error.what());
        std::exit(1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(codes.begin(), codes.end());
}

}  // namespace

int main(int argc, char** argv) {
  std::string threads = "0";
  std::string memory = "plain";
  peers::Options options =
      peers::parse(argc, argv, "Tutti", {{"--threads", &threads}, {"--memory", &memory}});
  int ranks = std::atoi(threads.c_str());
  if (ranks < 0 || ranks > 1024 || (memory != "plain" && memory != "window")) {
    std::fprintf(stderr, "--threads takes 0 (a rank is a process) to 1024, --memory plain or window\n");
    return 2;
  }
  try {
    if (ranks > 0) return as_threads(ranks, options, memory == "window");
    tutti::World world = tutti::World::from_environment();
    Tutti library(world.communicator(), memory == "window");
    return peers::measure(library, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
