// SPDX-License-Identifier: BSD-3-Clause
//
// Gloo over its tcp transport, the only one that it has for plain hosts, on the loopback or on the interface
// that
// --interface names. Ranks find each other by a folder (--store); RANK and WORLD_SIZE say who is who.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "harness.hpp"

namespace {

using bench::Kind;

class Gloo final : public peers::Library {
 public:
  Gloo(const std::string& store_folder, const std::string& interface, int rank, int ranks)
      : store_(store_folder), context_(std::make_shared<gloo::rendezvous::Context>(rank, ranks)) {
    gloo::transport::tcp::attr attributes;
    if (interface.empty())
      attributes.hostname = "localhost";
    else
      attributes.iface = interface;
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
    context_->connectFullMesh(store_, device);
  }

  std::string name() const override { return "Gloo (tcp)"; }
  int rank() const override { return context_->rank; }
  int ranks() const override { return context_->size; }
  // Its reduce_scatter is of an older interface that owns its buffers.
  bool has(Kind kind) const override { return kind != Kind::reduce_scatter && kind != Kind::sendrecv; }

  void run(Kind kind, const float* input, float* output, std::size_t count) override {
    auto* send = const_cast<float*>(input);
    auto n = static_cast<std::size_t>(ranks());
    void (*sum)(void*, const void*, const void*, std::size_t) = &gloo::sum<float>;
    switch (kind) {
      case Kind::all_reduce: {
        gloo::AllreduceOptions options(context_);
        options.setInput(send, count);
        options.setOutput(output, count);
        options.setReduceFunction(sum);
        return gloo::allreduce(options);
      }
      case Kind::all_gather: {
        gloo::AllgatherOptions options(context_);
        options.setInput(send, count);
        options.setOutput(output, n * count);
        return gloo::allgather(options);
      }
      case Kind::broadcast: {
        gloo::BroadcastOptions options(context_);
        options.setOutput(output, count);
        options.setRoot(0);
        return gloo::broadcast(options);
      }
      case Kind::reduce: {
        gloo::ReduceOptions options(context_);
        options.setInput(send, count);
        options.setOutput(output, count);  // on every rank: it serves as scratch
        options.setReduceFunction(sum);
        options.setRoot(0);
        return gloo::reduce(options);
      }
      case Kind::alltoall: {
        gloo::AlltoallOptions options(context_);
        options.setInput(send, n * count);
        options.setOutput(output, n * count);
        return gloo::alltoall(options);
      }
      case Kind::gather: {
        gloo::GatherOptions options(context_);
        options.setInput(send, count);
        if (rank() == 0) options.setOutput(output, n * count);
        options.setRoot(0);
        return gloo::gather(options);
      }
      case Kind::scatter: {
        gloo::ScatterOptions options(context_);
        std::vector<float*> parts;
        for (std::size_t r = 0; r < n; ++r) parts.push_back(send + r * count);
        if (rank() == 0) options.setInputs(parts, count);
        options.setOutput(output, count);
        options.setRoot(0);
        return gloo::scatter(options);
      }
      case Kind::reduce_scatter:
      case Kind::sendrecv:
        throw std::logic_error("not measured with Gloo");
    }
  }

  double largest(double value) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(&value, 1);
    void (*max)(void*, const void*, const void*, std::size_t) = &gloo::max<double>;
    options.setReduceFunction(max);
    gloo::allreduce(options);
    return value;
  }

 private:
  gloo::rendezvous::FileStore store_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
};

}  // namespace

int main(int argc, char** argv) {
  std::string store, interface;
  peers::Options options =
      peers::parse(argc, argv, "Gloo", {{"--store", &store}, {"--interface", &interface}});
  const char* rank = std::getenv("RANK");
  const char* ranks = std::getenv("WORLD_SIZE");
  if (store.empty() || rank == nullptr || ranks == nullptr) {
    std::fprintf(stderr, "start it with: tutti run -n N %s --store EMPTY_FOLDER ...\n", argv[0]);
    return 2;
  }
  try {
    Gloo library(store, interface, std::atoi(rank), std::atoi(ranks));
    return peers::measure(library, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
