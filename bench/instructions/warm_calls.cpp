// SPDX-License-Identifier: BSD-3-Clause
//
// Two ranks; rank 0 comes late to every call, so that it finds rank 1's message and waits for nothing: what
// is counted on rank 0 is the call itself: an all-reduce, or a group of a send and a receive. Run by
// bench/instructions/count.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "tutti/communicator.hpp"
#include "tutti/world.hpp"

// What callgrind counts of the four calls.
extern "C" __attribute__((noinline)) void counted_send_receive(tutti::Communicator& communicator,
                                                               const float* in, float* out) {
  int peer = 1 - communicator.rank();
  tutti::check(ncclGroupStart());
  tutti::check(ncclSend(in, 2, ncclFloat32, peer, communicator.get(), nullptr));
  tutti::check(ncclRecv(out, 2, ncclFloat32, peer, communicator.get(), nullptr));
  tutti::check(ncclGroupEnd());
}

int main(int argc, char** argv) {
  int calls = argc > 1 ? std::atoi(argv[1]) : 1000;
  bool send_receive = argc > 2 && std::string_view(argv[2]) == "send_receive";
  try {
    tutti::World world = tutti::World::from_environment();
    tutti::Communicator communicator = world.communicator();
    float in[2] = {1, 2};
    float out[2] = {};
    for (int i = 0; i < calls; ++i) {
      if (communicator.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (send_receive)
        counted_send_receive(communicator, in, out);
      else
        tutti::check(ncclAllReduce(in, out, 2, ncclFloat32, ncclSum, communicator.get(), nullptr));
    }
    if (out[1] != 2.0F * static_cast<float>(send_receive ? 1 : communicator.size())) return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
