// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <barrier>
#include <span>
#include <vector>

#include "collectives.hpp"
#include "options.hpp"
#include "report.hpp"
#include "tutti/communicator.hpp"

namespace bench {

/// One rank: its communicator, operators and memory.
class Rank {
 public:
  Rank(tutti::Communicator communicator, const Options& options, Kind kind);
  ~Rank();
  Rank(Rank&&) noexcept;
  Rank& operator=(Rank&&) = delete;

  ncclComm_t comm() const { return communicator_.get(); }
  Problem problem(ncclDataType_t type, values::Op op, int root, std::size_t bytes, bool in_place) const;
  Buffers buffers() const;
  ncclRedOp_t op_for(const Problem& problem);

 private:
  std::byte* allocate(std::size_t bytes);

  tutti::Communicator communicator_;
  const Options& options_;
  Kind kind_;
  int rank_, ranks_;
  std::vector<void*> allocations_, handles_;
  std::vector<ncclWindow_t> windows_;
  std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;
  std::vector<std::pair<ncclDataType_t, ncclRedOp_t>> premul_ops_;
};

/// What one thread does: the whole table for the ranks that it drives; `report` is null on all threads but
/// the first of the process. Throws tutti::Exception when a call fails.
void run_table(std::vector<Rank>& ranks, const Options& options, Kind kind, Report* report);

}  // namespace bench
