// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/wire.hpp"

namespace tutti {

const char* WireReader::take(std::size_t size) {
  if (size > bytes_.size() - at_)
    fail(ncclSystemError, "a control message ends after {} bytes, {} more were expected", bytes_.size(),
         size - (bytes_.size() - at_));
  const char* result = bytes_.data() + at_;
  at_ += size;
  return result;
}

}  // namespace tutti
