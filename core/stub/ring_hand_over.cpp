// SPDX-License-Identifier: Apache-2.0
#include "core/stub/ring_hand_over.h"

#include <cpuid.h>
#include <fmt/format.h>

#include <array>
#include <limits>

#include "core/capture/ring.h"
#include "core/process/syscalls.h"

extern "C" {
// record_x86_64.S
extern const std::uint8_t whomap_record_begin[], whomap_record_literals[], whomap_record_end[];
}

namespace whomap {
namespace {

constexpr std::uint8_t nop = 0x90;
constexpr std::size_t literal_alignment =
    8;  // of the template too, so that its literals are never misaligned

/// CPUID 80000001H:ECX bit 0, LAHF and SAHF available in 64-bit mode (Intel SDM, CPUID).
bool has_lahf() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c & 1U) != 0;
}

/// What takes memory away or moves it is needed for the ledger, whatever the rate.
bool always_recorded(std::int64_t number) {
  return number == memory_syscall("munmap")->x86_64 || number == memory_syscall("mremap")->x86_64 ||
         number == memory_syscall("brk")->x86_64;
}

}  // namespace

Result<void> RingHandOver::emit(CodeBuffer& code, std::uint32_t site, std::int64_t number) {
  if (!has_lahf())
    return fail(ErrorCode::kernel_feature, "this processor has no lahf in 64-bit mode", "use --engine gdb");
  if (number < 0 || number > std::numeric_limits<std::int32_t>::max())
    return fail(ErrorCode::unsupported_target, fmt::format("{} is no system call number", number));
  constexpr std::array<std::uint8_t, literal_alignment> padding{nop, nop, nop, nop, nop, nop, nop, nop};
  code.append(
      std::span(padding).first((literal_alignment - code.here() % literal_alignment) % literal_alignment));
  const std::size_t literals =
      code.bytes().size() + static_cast<std::size_t>(whomap_record_literals - whomap_record_begin);
  code.append({whomap_record_begin, whomap_record_end});
  code.write64(literals + WHOMAP_LITERAL_CONTROL, control_address_);
  code.write64(literals + WHOMAP_LITERAL_CALLS, control_address_ + WHOMAP_CALLS);
  code.write32(literals + WHOMAP_LITERAL_NUMBER, static_cast<std::uint32_t>(number));
  code.write32(literals + WHOMAP_LITERAL_SITE, site);
  code.write32(literals + WHOMAP_LITERAL_ALWAYS, always_recorded(number) ? 1 : 0);
  return {};
}

}  // namespace whomap
