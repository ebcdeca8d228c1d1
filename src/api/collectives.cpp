// SPDX-License-Identifier: BSD-3-Clause
//
// The collectives and point-to-point calls of nccl.h.
#include "api/handles.hpp"
#include "communicator/group.hpp"

using namespace tutti;
using tutti::api::guarded;
using tutti::api::HandleUse;

namespace {

DataType checked_type(ncclDataType_t type) {
  auto value = static_cast<int>(type);
  if (value < 0 || value >= kDataTypeCount)
    fail(ncclInvalidArgument, "datatype {} does not exist: expected 0 to {}", value, kDataTypeCount - 1);
  return static_cast<DataType>(value);
}

Operator checked_operator(Communicator& communicator, ncclRedOp_t op, DataType type) {
  auto value = static_cast<int>(op);
  if (value >= 0 && value < static_cast<int>(ncclNumOps)) return {static_cast<OperatorKind>(value), 0};
  return communicator.find_operator(value, type);
}

void check_count(const Communicator& communicator, std::size_t count, DataType type) {
  std::size_t limit = PTRDIFF_MAX / size_of(type) / static_cast<std::size_t>(communicator.ranks());
  if (count > limit)
    fail(ncclInvalidArgument, "count {} of {} with {} ranks is more than memory can hold", count,
         name_of(type), communicator.ranks());
}

void check_rank(const Communicator& communicator, int rank, const char* argument) {
  if (rank < 0 || rank >= communicator.ranks())
    fail(ncclInvalidArgument, "{} is {}, expected 0 to {}", argument, rank, communicator.ranks() - 1);
}

// Checks what is common and hands the operation over.
ncclResult_t call(const char* function, ncclComm_t comm, cudaStream_t stream, Collective collective,
                  const void* input, void* output, std::size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                  int root) {
  return guarded(function, [&] {
    HandleUse use(comm);
    Communicator& communicator = *use;
    if (communicator.is_finalized()) fail(ncclInvalidUsage, "the communicator has been finalized");
    Operation operation;
    operation.collective = collective;
    operation.input = input;
    operation.output = output;
    operation.count = count;
    operation.type = checked_type(datatype);
    if (is_reducing(collective)) operation.op = checked_operator(communicator, op, operation.type);
    check_count(communicator, count, operation.type);
    bool point_to_point = is_point_to_point(collective);
    if (has_root(collective) || point_to_point)
      check_rank(communicator, root, point_to_point ? "peer" : "root");
    operation.root = root;
    Shape shape{.collective = collective,
                .ranks = communicator.ranks(),
                .rank = communicator.rank(),
                .root = root,
                .count = count};
    if (input_count(shape) != 0) api::require(input, "sendbuff");
    if (output_count(shape) != 0) api::require(output, "recvbuff");
    HostStream* host_stream = api::stream_of(stream);
    Group& group = Group::of_this_thread();
    if (group.is_open())
      group.add(use.shared(), host_stream, operation);
    else
      submit(use.shared(), host_stream, operation);
  });
}

}  // namespace

TUTTI_API(ncclResult_t, ncclAllReduce, const void* sendbuff, void* recvbuff, size_t count,
          ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclAllReduce", comm, stream, Collective::all_reduce, sendbuff, recvbuff, count, datatype, op,
              0);
}

TUTTI_API(ncclResult_t, ncclBroadcast, const void* sendbuff, void* recvbuff, size_t count,
          ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclBroadcast", comm, stream, Collective::broadcast, sendbuff, recvbuff, count, datatype,
              ncclSum, root);
}

TUTTI_API(ncclResult_t, ncclBcast, void* buff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream) {
  return call("ncclBcast", comm, stream, Collective::broadcast, buff, buff, count, datatype, ncclSum, root);
}

TUTTI_API(ncclResult_t, ncclReduce, const void* sendbuff, void* recvbuff, size_t count,
          ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclReduce", comm, stream, Collective::reduce, sendbuff, recvbuff, count, datatype, op, root);
}

TUTTI_API(ncclResult_t, ncclAllGather, const void* sendbuff, void* recvbuff, size_t sendcount,
          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclAllGather", comm, stream, Collective::all_gather, sendbuff, recvbuff, sendcount, datatype,
              ncclSum, 0);
}

TUTTI_API(ncclResult_t, ncclReduceScatter, const void* sendbuff, void* recvbuff, size_t recvcount,
          ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclReduceScatter", comm, stream, Collective::reduce_scatter, sendbuff, recvbuff, recvcount,
              datatype, op, 0);
}

TUTTI_API(ncclResult_t, ncclAlltoAll, const void* sendbuff, void* recvbuff, size_t count,
          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclAlltoAll", comm, stream, Collective::all_to_all, sendbuff, recvbuff, count, datatype,
              ncclSum, 0);
}

TUTTI_API(ncclResult_t, ncclGather, const void* sendbuff, void* recvbuff, size_t count,
          ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclGather", comm, stream, Collective::gather, sendbuff, recvbuff, count, datatype, ncclSum,
              root);
}

TUTTI_API(ncclResult_t, ncclScatter, const void* sendbuff, void* recvbuff, size_t count,
          ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclScatter", comm, stream, Collective::scatter, sendbuff, recvbuff, count, datatype, ncclSum,
              root);
}

TUTTI_API(ncclResult_t, ncclSend, const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
          ncclComm_t comm, cudaStream_t stream) {
  return call("ncclSend", comm, stream, Collective::send, sendbuff, nullptr, count, datatype, ncclSum, peer);
}

TUTTI_API(ncclResult_t, ncclRecv, void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
          ncclComm_t comm, cudaStream_t stream) {
  return call("ncclRecv", comm, stream, Collective::receive, nullptr, recvbuff, count, datatype, ncclSum,
              peer);
}

TUTTI_API(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
          ncclScalarResidence_t residence, ncclComm_t comm) {
  return guarded("ncclRedOpCreatePreMulSum", [&] {
    HandleUse use(comm);
    api::require(op, "op");
    api::require(scalar, "scalar");
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
      fail(ncclInvalidArgument, "residence {} is neither ncclScalarDevice nor ncclScalarHostImmediate",
           static_cast<int>(residence));
    *op = static_cast<ncclRedOp_t>(
        use->create_operator(checked_type(datatype), scalar, residence == ncclScalarDevice));
  });
}

TUTTI_API(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm) {
  return guarded("ncclRedOpDestroy", [&] { HandleUse(comm)->destroy_operator(static_cast<int>(op)); });
}
