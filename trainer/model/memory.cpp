// SPDX-License-Identifier: BSD-3-Clause
#include "model/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace trainer {

std::string name_of(Type type) {
  switch (type) {
    case Type::Float32:
      return "fp32";
    case Type::Bfloat16:
      return "bf16";
    case Type::Float16:
      return "fp16";
  }
  return "?";
}

Type type_from(const std::string& name) {
  for (Type type : {Type::Float32, Type::Bfloat16, Type::Float16})
    if (name == name_of(type)) return type;
  throw Error(fmt::format("there is no precision \"{}\": choose fp32, bf16 or fp16", name));
}

const char* name_of(Use use) {
  switch (use) {
    case Use::Parameters:
      return "parameters";
    case Use::Gradients:
      return "gradients";
    case Use::OptimizerStates:
      return "optimizer states";
    case Use::Activations:
      return "activations";
    case Use::Workspace:
      return "workspace";
  }
  return "?";
}

Array::Array(Memory& memory, Use use, Type type, Index count)
    : memory_(&memory), count_(count), type_(type), use_(use) {
  data_ = memory.take(use, bytes());
}

void Array::release() {
  if (data_ != nullptr) memory_->give_back(use_, data_, bytes());
  data_ = nullptr;
  count_ = 0;
}

void Array::fill_zero() {
  if (data_ != nullptr) std::memset(data_, 0, static_cast<std::size_t>(bytes()));
}

Memory::~Memory() {
  for (auto& [bytes, blocks] : free_)
    for (void* block : blocks) std::free(block);
}

namespace {
// Blocks are of whole cache lines, and never empty.
Index rounded(Index bytes) { return std::max<Index>((bytes + 63) / 64 * 64, 64); }
}  // namespace

void* Memory::take(Use use, Index bytes) {
  auto kind = static_cast<std::size_t>(use);
  void* block = nullptr;
  auto found = free_.find(rounded(bytes));
  if (found != free_.end() && !found->second.empty()) {
    block = found->second.back();
    found->second.pop_back();
  } else {
    block = std::aligned_alloc(64, static_cast<std::size_t>(rounded(bytes)));
    if (block == nullptr)
      throw Error(
          fmt::format("no memory for {} more bytes of {}: choose a smaller model, micro-batch or context",
                      bytes, name_of(use)));
  }
  now_[kind] += bytes;
  peak_[kind] = std::max(peak_[kind], now_[kind]);
  return block;
}

void Memory::give_back(Use use, void* data, Index bytes) {
  now_[static_cast<std::size_t>(use)] -= bytes;
  free_[rounded(bytes)].push_back(data);
}

}  // namespace trainer
