// SPDX-License-Identifier: BSD-3-Clause
//
// bench/peers: one way to time a collective, whatever the library: the same buffers, the same loop, the same
// check. A program per library says how each collective is called there; bench/compare runs them in turn.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "../collectives.hpp"

namespace peers {

/// A rank's view of a library: float32, operator sum, root 0. All calls block; errors throw std::exception.
class Library {
 public:
  Library() = default;
  virtual ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  virtual std::string name() const = 0;  ///< with its version
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual bool has(bench::Kind kind) const = 0;
  /// `count` as of the C call of NCCL: elements per rank.
  virtual void run(bench::Kind kind, const float* send, float* receive, std::size_t count) = 0;
  /// The largest value of all ranks, on all ranks.
  virtual double largest(double value) = 0;
  /// Memory that stays until the library object goes: of malloc, on whole pages.
  virtual void* allocate(std::size_t bytes);

 private:
  std::vector<void*> allocations_;
};

struct Options {
  std::vector<bench::Kind> kinds;
  std::vector<std::size_t> sizes;  ///< bytes of the larger of a rank's two buffers
  double seconds = 0.05;           ///< of timing a point, at least one call
  std::string json;                ///< file, or empty: a table on stdout
};

/// Flags that all the programs share; exits with 0 after --help and with 2 for a wrong flag. `extra` lets a
/// program add flags of its own.
Options parse(int argc, char** argv, const std::string& program,
              const std::vector<std::pair<std::string, std::string*>>& extra = {});

/// Times every point. Returns the exit code: 1 when a result was wrong. All ranks call it; rank 0 writes.
int measure(Library& library, const Options& options);

}  // namespace peers
