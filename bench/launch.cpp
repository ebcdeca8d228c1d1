// SPDX-License-Identifier: BSD-3-Clause
#include "launch.hpp"

namespace bench {

ncclResult_t launch(const Problem& p, const Buffers& buffers, ncclRedOp_t op, ncclComm_t comm) {
  Buffers b = arguments(p, buffers);
  switch (p.kind) {
    case Kind::all_reduce:
      return ncclAllReduce(b.send, b.receive, p.count, p.type, op, comm, nullptr);
    case Kind::all_gather:
      return ncclAllGather(b.send, b.receive, p.count, p.type, comm, nullptr);
    case Kind::reduce_scatter:
      return ncclReduceScatter(b.send, b.receive, p.count, p.type, op, comm, nullptr);
    case Kind::broadcast:
      return ncclBroadcast(b.send, b.receive, p.count, p.type, p.root, comm, nullptr);
    case Kind::reduce:
      return ncclReduce(b.send, b.receive, p.count, p.type, op, p.root, comm, nullptr);
    case Kind::alltoall:
      return ncclAlltoAll(b.send, b.receive, p.count, p.type, comm, nullptr);
    case Kind::gather:
      return ncclGather(b.send, b.receive, p.count, p.type, p.root, comm, nullptr);
    case Kind::scatter:
      return ncclScatter(b.send, b.receive, p.count, p.type, p.root, comm, nullptr);
    case Kind::sendrecv:
      break;
  }
  ncclGroupStart();
  ncclSend(b.send, p.count, p.type, (p.rank + 1) % p.ranks, comm, nullptr);
  ncclRecv(b.receive, p.count, p.type, (p.rank - 1 + p.ranks) % p.ranks, comm, nullptr);
  return ncclGroupEnd();
}

}  // namespace bench
