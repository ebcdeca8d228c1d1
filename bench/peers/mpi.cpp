// SPDX-License-Identifier: BSD-3-Clause
//
// Built once against Open MPI and once against MPICH.
#define OMPI_SKIP_MPICXX 1  // the C interface alone: no C++ bindings to link
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "harness.hpp"

namespace {

using bench::Kind;

void check(int code) {
  if (code != MPI_SUCCESS) throw std::runtime_error("an MPI call failed");
}

class Mpi final : public peers::Library {
 public:
  Mpi() {
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
    check(MPI_Comm_size(MPI_COMM_WORLD, &ranks_));
  }

  std::string name() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    check(MPI_Get_library_version(text, &length));
    std::string version(text, static_cast<std::size_t>(length));
#ifdef OPEN_MPI
    return version.substr(0, version.find(','));  // "Open MPI v4.1.4, package: ..."
#else
    auto begin = version.find_first_of("0123456789");  // "MPICH Version:\t4.0.2\nMPICH Release date: ..."
    return "MPICH " + version.substr(begin, version.find_first_of("\n ", begin) - begin);
#endif
  }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  bool has(Kind) const override { return true; }

  void run(Kind kind, const float* send, float* receive, std::size_t elements) override {
    auto count = static_cast<int>(elements);  // 256 MiB are 2^26 floats
    MPI_Comm world = MPI_COMM_WORLD;
    switch (kind) {
      case Kind::all_reduce:
        return check(MPI_Allreduce(send, receive, count, MPI_FLOAT, MPI_SUM, world));
      case Kind::all_gather:
        return check(MPI_Allgather(send, count, MPI_FLOAT, receive, count, MPI_FLOAT, world));
      case Kind::reduce_scatter:
        return check(MPI_Reduce_scatter_block(send, receive, count, MPI_FLOAT, MPI_SUM, world));
      case Kind::broadcast:
        return check(MPI_Bcast(receive, count, MPI_FLOAT, 0, world));
      case Kind::reduce:
        return check(MPI_Reduce(send, receive, count, MPI_FLOAT, MPI_SUM, 0, world));
      case Kind::alltoall:
        return check(MPI_Alltoall(send, count, MPI_FLOAT, receive, count, MPI_FLOAT, world));
      case Kind::gather:
        return check(MPI_Gather(send, count, MPI_FLOAT, receive, count, MPI_FLOAT, 0, world));
      case Kind::scatter:
        return check(MPI_Scatter(send, count, MPI_FLOAT, receive, count, MPI_FLOAT, 0, world));
      case Kind::sendrecv:
        return check(MPI_Sendrecv(send, count, MPI_FLOAT, (rank_ + 1) % ranks_, 0, receive, count, MPI_FLOAT,
                                  (rank_ + ranks_ - 1) % ranks_, 0, world, MPI_STATUS_IGNORE));
    }
  }

  double largest(double value) override {
    double result = 0;
    check(MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    return result;
  }

 private:
  int rank_ = 0, ranks_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = 1;
  try {
    peers::Options options = peers::parse(argc, argv, "MPI");
    Mpi library;
    code = peers::measure(library, options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return code;
}
