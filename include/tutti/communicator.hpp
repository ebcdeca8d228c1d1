// SPDX-License-Identifier: BSD-3-Clause
//
// Communicators as C++ objects: owned handles, spans instead of pointers and counts, exceptions instead of
// codes. A thin layer over nccl.h; everything said there about blocking, order and buffers holds.
#ifndef TUTTI_COMMUNICATOR_HPP_
#define TUTTI_COMMUNICATOR_HPP_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tutti.h"

namespace tutti {

/// A call failed: what() is the sentence of ncclGetLastError.
class Exception : public std::runtime_error {
 public:
  Exception(ncclResult_t code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  ncclResult_t code() const { return code_; }

 private:
  ncclResult_t code_;
};

/// Throws when `result` is an error; ncclInProgress is none.
inline void check(ncclResult_t result) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  std::string sentence = ncclGetLastError(nullptr);
  throw Exception(result, sentence.empty() ? ncclGetErrorString(result) : sentence);
}

/// The ncclDataType_t of a C++ type; specialize it for 16- and 8-bit floating types of your own.
template <class T>
struct DataTypeOf;
template <>
struct DataTypeOf<std::int8_t> {
  static constexpr ncclDataType_t value = ncclInt8;
};
template <>
struct DataTypeOf<std::uint8_t> {
  static constexpr ncclDataType_t value = ncclUint8;
};
template <>
struct DataTypeOf<std::int32_t> {
  static constexpr ncclDataType_t value = ncclInt32;
};
template <>
struct DataTypeOf<std::uint32_t> {
  static constexpr ncclDataType_t value = ncclUint32;
};
template <>
struct DataTypeOf<std::int64_t> {
  static constexpr ncclDataType_t value = ncclInt64;
};
template <>
struct DataTypeOf<std::uint64_t> {
  static constexpr ncclDataType_t value = ncclUint64;
};
template <>
struct DataTypeOf<float> {
  static constexpr ncclDataType_t value = ncclFloat32;
};
template <>
struct DataTypeOf<double> {
  static constexpr ncclDataType_t value = ncclFloat64;
};
template <class T>
inline constexpr ncclDataType_t data_type_of = DataTypeOf<std::remove_cv_t<T>>::value;

/// A host stream that is destroyed with its owner, after what is queued has run. Movable.
class Stream {
 public:
  Stream() { check(tuttiStreamCreate(&handle_)); }
  ~Stream() { tuttiStreamDestroy(handle_); }
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  /// Blocks until all that was queued is done; throws the first error of it.
  void synchronize() const { check(tuttiStreamSynchronize(handle_)); }
  cudaStream_t get() const { return handle_; }
  operator cudaStream_t() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

/// Calls between its making and end() are started together (ncclGroupStart/End). Without end() - when an
/// exception passes - the group is closed and errors are lost to that exception.
class GroupScope {
 public:
  GroupScope() { check(ncclGroupStart()); }
  ~GroupScope() {
    if (open_) ncclGroupEnd();
  }
  GroupScope(const GroupScope&) = delete;
  GroupScope& operator=(const GroupScope&) = delete;
  void end() {
    open_ = false;
    check(ncclGroupEnd());
  }

 private:
  bool open_ = true;
};

/// One rank of a communicator. Movable; destroying it destroys the handle (which waits for outstanding work).
class Communicator {
 public:
  Communicator() = default;
  explicit Communicator(ncclComm_t handle) : handle_(handle) {}
  /// Blocks until all ranks have joined.
  Communicator(const ncclUniqueId& id, int ranks, int rank) {
    check(ncclCommInitRank(&handle_, ranks, id, rank));
  }
  /// All ranks in this process, for threads that each take one.
  static std::vector<Communicator> local(int ranks) {
    std::vector<ncclComm_t> handles(static_cast<std::size_t>(ranks));
    check(ncclCommInitAll(handles.data(), ranks, nullptr));
    return {handles.begin(), handles.end()};
  }
  ~Communicator() {
    if (handle_ != nullptr) ncclCommDestroy(handle_);
  }
  Communicator(Communicator&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  ncclComm_t get() const { return handle_; }
  int rank() const {
    int value = 0;
    check(ncclCommUserRank(handle_, &value));
    return value;
  }
  int size() const {
    int value = 0;
    check(ncclCommCount(handle_, &value));
    return value;
  }
  /// Collective; an empty communicator for NCCL_SPLIT_NOCOLOR.
  Communicator split(int color, int key) const {
    ncclComm_t part = nullptr;
    check(ncclCommSplit(handle_, color, key, &part, nullptr));
    return Communicator(part);
  }

  /// output[i] = op over ranks of input[i]; equal sizes; input and output may be the same span.
  template <class T>
  void all_reduce(std::span<const T> input, std::span<T> output, ncclRedOp_t op = ncclSum,
                  cudaStream_t stream = nullptr) const {
    require(input.size() == output.size(), "all_reduce: input and output must have equal sizes");
    check(ncclAllReduce(input.data(), output.data(), input.size(), data_type_of<T>, op, handle_, stream));
  }
  template <class T>
  void all_reduce(std::span<T> in_place, ncclRedOp_t op = ncclSum, cudaStream_t stream = nullptr) const {
    all_reduce(std::span<const T>(in_place), in_place, op, stream);
  }
  template <class T>
  void broadcast(std::span<T> buffer, int root, cudaStream_t stream = nullptr) const {
    check(ncclBcast(buffer.data(), buffer.size(), data_type_of<T>, root, handle_, stream));
  }
  /// `output` is used on the root only.
  template <class T>
  void reduce(std::span<const T> input, std::span<T> output, int root, ncclRedOp_t op = ncclSum,
              cudaStream_t stream = nullptr) const {
    check(ncclReduce(input.data(), output.data(), input.size(), data_type_of<T>, op, root, handle_, stream));
  }
  /// output.size() == size() * input.size().
  template <class T>
  void all_gather(std::span<const T> input, std::span<T> output, cudaStream_t stream = nullptr) const {
    require(output.size() == input.size() * ranks(), "all_gather: output must hold size() times the input");
    check(ncclAllGather(input.data(), output.data(), input.size(), data_type_of<T>, handle_, stream));
  }
  /// input.size() == size() * output.size().
  template <class T>
  void reduce_scatter(std::span<const T> input, std::span<T> output, ncclRedOp_t op = ncclSum,
                      cudaStream_t stream = nullptr) const {
    require(input.size() == output.size() * ranks(),
            "reduce_scatter: input must hold size() times the output");
    check(
        ncclReduceScatter(input.data(), output.data(), output.size(), data_type_of<T>, op, handle_, stream));
  }
  /// Both hold size() equal blocks.
  template <class T>
  void all_to_all(std::span<const T> input, std::span<T> output, cudaStream_t stream = nullptr) const {
    require(input.size() == output.size() && input.size() % ranks() == 0,
            "all_to_all: input and output must hold size() equal blocks");
    check(
        ncclAlltoAll(input.data(), output.data(), input.size() / ranks(), data_type_of<T>, handle_, stream));
  }
  template <class T>
  void send(std::span<const T> data, int peer, cudaStream_t stream = nullptr) const {
    check(ncclSend(data.data(), data.size(), data_type_of<T>, peer, handle_, stream));
  }
  template <class T>
  void receive(std::span<T> data, int peer, cudaStream_t stream = nullptr) const {
    check(ncclRecv(data.data(), data.size(), data_type_of<T>, peer, handle_, stream));
  }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(size()); }
  static void require(bool condition, const char* sentence) {
    if (!condition) throw Exception(ncclInvalidArgument, sentence);
  }
  ncclComm_t handle_ = nullptr;
};

}  // namespace tutti

#endif
