// SPDX-License-Identifier: BSD-3-Clause
#include "communicator/signature.hpp"

#include <fmt/format.h>

namespace tutti {

CallHeader Signature::pack() const {
  std::uint64_t call = sequence;
  call = call << 4 | static_cast<std::uint64_t>(collective);
  call = call << 4 | static_cast<std::uint64_t>(type);
  call = call << 4 | static_cast<std::uint64_t>(op);
  call = call << 4 | static_cast<std::uint64_t>(algorithm);
  call = call << 16 | static_cast<std::uint16_t>(root);
  return {call, count};
}

Signature Signature::unpack(const CallHeader& header) {
  std::uint64_t call = header.call;
  Signature s;
  s.root = static_cast<int>(call & 0xFFFF);
  s.algorithm = static_cast<Algorithm>(call >> 16 & 0xF);
  s.op = static_cast<OperatorKind>(call >> 20 & 0xF);
  s.type = static_cast<DataType>(call >> 24 & 0xF);
  s.collective = static_cast<Collective>(call >> 28 & 0xF);
  s.sequence = static_cast<std::uint32_t>(call >> 32);
  s.count = header.count;
  return s;
}

std::string Signature::in_words() const {
  if (is_point_to_point(collective))
    return fmt::format("ncclSend/ncclRecv(count {}, {})", count, name_of(type));
  std::string text = fmt::format("nccl{}(count {}, {}", name_of(collective), count, name_of(type));
  if (is_reducing(collective)) text += fmt::format(", {}", name_of(op));
  if (has_root(collective)) text += fmt::format(", root {}", root);
  return text + fmt::format(") [operation {}, {}]", sequence, name_of(algorithm));
}

}  // namespace tutti
