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

// Throws what is wrong with the arguments of a call; makes its operator.
Operation checked(Communicator& communicator, Operation operation, ncclDataType_t datatype, ncclRedOp_t op) {
  operation.type = checked_type(datatype);
  if (is_reducing(operation.collective)) operation.op = checked_operator(communicator, op, operation.type);
  check_count(communicator, operation.count, operation.type);
  bool point_to_point = is_point_to_point(operation.collective);
  if (has_root(operation.collective) || point_to_point)
    check_rank(communicator, operation.root, point_to_point ? "peer" : "root");
  Shape shape{.collective = operation.collective,
              .ranks = communicator.ranks(),
              .rank = communicator.rank(),
              .root = operation.root,
              .count = operation.count};
  if (input_count(shape) != 0) api::require(operation.input, "sendbuff");
  if (output_count(shape) != 0) api::require(operation.output, "recvbuff");
  return operation;
}

// What the C functions take besides what makes an Operation.
struct Arguments {
  cudaStream_t stream;
  ncclDataType_t datatype;
  ncclRedOp_t op = ncclSum;
};

// A call that may be like the last one of its kind, on this thread: none of its arguments is new.
bool repeat(Communicator& communicator, const Arguments& arguments, Operation& operation) {
  auto type = static_cast<unsigned>(arguments.datatype);
  auto kind = static_cast<unsigned>(arguments.op);
  if (arguments.stream != nullptr || Group::is_open() || type >= kDataTypeCount || kind >= ncclNumOps)
    return false;
  operation.type = static_cast<DataType>(type);
  operation.op.kind = static_cast<OperatorKind>(kind);
  return execute_repeated(communicator, operation);
}

// Checks what is common and hands the operation over, which comes without its type and its operator.
ncclResult_t call(const char* function, ncclComm_t comm, const Arguments& arguments, Operation operation) {
  return guarded(function, [&] {
    HandleUse use(comm);
    Communicator& communicator = *use;
    if (communicator.is_finalized()) fail(ncclInvalidUsage, "the communicator has been finalized");
    if (repeat(communicator, arguments, operation)) return;
    operation = checked(communicator, operation, arguments.datatype, arguments.op);
    HostStream* host_stream = api::stream_of(arguments.stream);
    if (Group::is_open())
      Group::of_this_thread().add(use.shared(), host_stream, operation);
    else
      submit(use.shared(), host_stream, operation);
  });
}

}  // namespace

TUTTI_API(ncclResult_t, ncclAllReduce, const void* sendbuff, void* recvbuff, size_t count,
          ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclAllReduce", comm, {stream, datatype, op},
              {.collective = Collective::all_reduce, .input = sendbuff, .output = recvbuff, .count = count});
}

TUTTI_API(ncclResult_t, ncclBroadcast, const void* sendbuff, void* recvbuff, size_t count,
          ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclBroadcast", comm, {stream, datatype},
              {.collective = Collective::broadcast,
               .input = sendbuff,
               .output = recvbuff,
               .count = count,
               .root = root});
}

TUTTI_API(ncclResult_t, ncclBcast, void* buff, size_t count, ncclDataType_t datatype, int root,
          ncclComm_t comm, cudaStream_t stream) {
  return call(
      "ncclBcast", comm, {stream, datatype},
      {.collective = Collective::broadcast, .input = buff, .output = buff, .count = count, .root = root});
}

TUTTI_API(ncclResult_t, ncclReduce, const void* sendbuff, void* recvbuff, size_t count,
          ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclReduce", comm, {stream, datatype, op},
              {.collective = Collective::reduce,
               .input = sendbuff,
               .output = recvbuff,
               .count = count,
               .root = root});
}

TUTTI_API(ncclResult_t, ncclAllGather, const void* sendbuff, void* recvbuff, size_t sendcount,
          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return call(
      "ncclAllGather", comm, {stream, datatype},
      {.collective = Collective::all_gather, .input = sendbuff, .output = recvbuff, .count = sendcount});
}

TUTTI_API(ncclResult_t, ncclReduceScatter, const void* sendbuff, void* recvbuff, size_t recvcount,
          ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return call(
      "ncclReduceScatter", comm, {stream, datatype, op},
      {.collective = Collective::reduce_scatter, .input = sendbuff, .output = recvbuff, .count = recvcount});
}

TUTTI_API(ncclResult_t, ncclAlltoAll, const void* sendbuff, void* recvbuff, size_t count,
          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclAlltoAll", comm, {stream, datatype},
              {.collective = Collective::all_to_all, .input = sendbuff, .output = recvbuff, .count = count});
}

TUTTI_API(ncclResult_t, ncclGather, const void* sendbuff, void* recvbuff, size_t count,
          ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclGather", comm, {stream, datatype},
              {.collective = Collective::gather,
               .input = sendbuff,
               .output = recvbuff,
               .count = count,
               .root = root});
}

TUTTI_API(ncclResult_t, ncclScatter, const void* sendbuff, void* recvbuff, size_t count,
          ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return call("ncclScatter", comm, {stream, datatype},
              {.collective = Collective::scatter,
               .input = sendbuff,
               .output = recvbuff,
               .count = count,
               .root = root});
}

TUTTI_API(ncclResult_t, ncclSend, const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
          ncclComm_t comm, cudaStream_t stream) {
  return call("ncclSend", comm, {stream, datatype},
              {.collective = Collective::send, .input = sendbuff, .count = count, .root = peer});
}

TUTTI_API(ncclResult_t, ncclRecv, void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
          ncclComm_t comm, cudaStream_t stream) {
  return call("ncclRecv", comm, {stream, datatype},
              {.collective = Collective::receive, .output = recvbuff, .count = count, .root = peer});
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
