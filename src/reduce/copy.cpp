// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "reduce/kernels.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tutti {
namespace {

#if defined(__x86_64__)
// Intel SDM and AMD APM: CPUID leaf 7, EBX bit 9: enhanced rep movsb/stosb.
bool has_enhanced_rep_movsb() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b >> 9 & 1U) != 0;
}

// Below this, starting the instruction costs more than the lines' way (docs/performance.md).
constexpr std::size_t kLeastRepMovsb = 1024;
#endif

}  // namespace

void copy_over_shared(void* destination, const void* source, std::size_t bytes) {
#if defined(__x86_64__)
  static const bool kEnhanced = has_enhanced_rep_movsb();
  if (bytes >= kLeastRepMovsb && kEnhanced) {
    asm volatile("rep movsb" : "+D"(destination), "+S"(source), "+c"(bytes) : : "memory");
    return;
  }
#endif
  std::memcpy(destination, source, bytes);
}

}  // namespace tutti
