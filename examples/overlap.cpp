// SPDX-License-Identifier: BSD-3-Clause
//
// Communication beside computation: an all-reduce is queued on a host stream, whose own thread works it off
// while this one computes. With a core to spare the two together take little longer than the longer one.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <tutti/communicator.hpp>
#include <vector>

namespace {

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double compute() {
  double sum = 0;
  for (int i = 1; i < 20'000'000; ++i) sum += std::sqrt(i);
  return sum;
}

}  // namespace

int main() try {
  // Both ranks in this process, on one stream: its thread drives them together.
  std::vector<tutti::Communicator> comms = tutti::Communicator::local(2);
  tutti::Stream stream;
  std::vector<std::vector<float>> gradients(2, std::vector<float>(8 << 20, 1.0F));
  auto all_reduce = [&] {
    tutti::GroupScope group;
    for (std::size_t r = 0; r < 2; ++r) comms[r].all_reduce(std::span(gradients[r]), ncclSum, stream);
    group.end();  // returns at once: the work is on the stream
  };

  auto start = std::chrono::steady_clock::now();
  all_reduce();
  stream.synchronize();
  double communication = milliseconds_since(start);

  start = std::chrono::steady_clock::now();
  double sum = compute();
  double computation = milliseconds_since(start);

  start = std::chrono::steady_clock::now();
  all_reduce();
  sum += compute();
  stream.synchronize();
  double together = milliseconds_since(start);

  std::printf("communication %.1f ms, computation %.1f ms, both at once %.1f ms (checksum %g)\n",
              communication, computation, together, sum);
  return gradients[0][0] == 4.0F && gradients[1].back() == 4.0F ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
