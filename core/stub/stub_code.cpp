// SPDX-License-Identifier: Apache-2.0
#include "core/stub/stub_code.h"

#include <array>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "core/stub/move_code.h"

namespace whomap {
namespace {

constexpr std::uint8_t nop = 0x90;
constexpr std::array<std::uint8_t, 2> system_call{0x0F, 0x05};

/// lea -number(%rax),%ecx: ecx becomes 0 for this number, and no flag changes. The kernel looks at eax alone
/// (arch/x86/entry/common.c, do_syscall_64). Only rcx and r11 are free here.
void append_lea(CodeBuffer& code, std::int64_t number) {
  const auto negative = static_cast<std::int32_t>(-number);
  if (negative >= std::numeric_limits<std::int8_t>::min()) {
    code.append(std::array<std::uint8_t, 3>{0x8D, 0x48, static_cast<std::uint8_t>(negative)});
    return;
  }
  std::array<std::uint8_t, 6> lea{0x8D, 0x88};
  std::memcpy(&lea[2], &negative, sizeof negative);
  code.append(lea);
}

/// jecxz with a distance to be filled in; returns the offset of the distance.
std::size_t append_jecxz(CodeBuffer& code) {
  code.append(std::array<std::uint8_t, 3>{0x67, 0xE3, 0});
  return code.bytes().size() - 1;
}

tl::unexpected<Error> out_of_reach(const Site& site) {
  return fail(ErrorCode::unsupported_target,
              fmt::format("the site at {:#x} is out of a jump's reach from its stub", site.syscall_address));
}

}  // namespace

Result<PlacedJump> append_stub(CodeBuffer& code, const Site& site, HandOver& hand_over) {
  const StubRoom& room = site.stub;
  const std::uint64_t start = code.here();
  auto moved = move_code(room.code, room.address, start);
  if (!moved) return tl::make_unexpected(moved.error());
  code.append(*moved);

  if (site.kind != NumberKind::variable) {
    if (auto emitted = hand_over.emit(code, site.id, site.number.value_or(-1)); !emitted)
      return tl::make_unexpected(emitted.error());
    if (!code.jump_to(site.return_address)) return out_of_reach(site);
  } else {
    // Calls that are not ours fall through all tests: some nanoseconds.
    std::vector<std::size_t> distances;
    for (const std::int64_t number : site.numbers) {
      append_lea(code, number);
      distances.push_back(append_jecxz(code));
    }
    code.append(system_call);
    if (!code.jump_to(site.return_address)) return out_of_reach(site);
    // jecxz reaches 127 bytes: islands come first, the calls behind them.
    std::vector<std::size_t> islands;
    for (const std::size_t distance : distances) {
      const std::size_t jump = code.bytes().size() - (distance + 1);
      if (jump > std::numeric_limits<std::int8_t>::max())
        return fail(ErrorCode::unsupported_target, "too many system calls are watched for one stub");
      code.write8(distance, static_cast<std::uint8_t>(jump));
      islands.push_back(code.bytes().size());
      if (!code.jump_to(code.here())) return out_of_reach(site);
    }
    for (std::size_t i = 0; i < islands.size(); ++i) {
      constexpr std::size_t jump_length = 5;
      code.write32(islands[i] + 1,
                   static_cast<std::uint32_t>(code.bytes().size() - islands[i] - jump_length));
      if (auto emitted = hand_over.emit(code, site.id, site.numbers[i]); !emitted)
        return tl::make_unexpected(emitted.error());
      if (!code.jump_to(site.return_address)) return out_of_reach(site);
    }
  }

  CodeBuffer jump(room.address);
  if (!jump.jump_to(start)) return out_of_reach(site);
  PlacedJump placed{
      site.id, room.address, {room.code.begin(), room.code.begin() + room.length}, jump.bytes()};
  placed.jump.resize(room.length, nop);
  return placed;
}

}  // namespace whomap
