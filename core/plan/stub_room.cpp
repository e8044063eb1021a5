// SPDX-License-Identifier: Apache-2.0
#include "core/plan/stub_room.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/plan/references.h"

namespace whomap {
namespace {

constexpr std::uint8_t jump_length = 5;
constexpr std::size_t most_moved = 12;  ///< instructions; compilers set the arguments right before the call

StubRoom no_room(std::string reason) {
  StubRoom room;
  room.reason = std::move(reason);
  return room;
}

/// Functions whose program counter is compared with their labels when a thread is cancelled: musl's
/// __syscall_cp_asm (src/thread/x86_64/syscall_cp.s) and glibc's __syscall_cancel_arch (since 2.41). A thread
/// that waits in a stub instead would not be cancelled.
bool compares_its_counter(const std::string& symbol) {
  return symbol.starts_with("__syscall_cp") || symbol.starts_with("__syscall_cancel_arch") ||
         symbol.starts_with("__cp_");
}

/// Jumps of two bytes (EB, 70..7F, E0..E3, rel8) from next to the function, which decoding it does not show.
bool is_reached_by_short_jump(const ModuleCode& module, AddressRange inside) {
  constexpr std::uint64_t reach = 130;
  std::vector<std::uint8_t> bytes(2 * reach + inside.size());
  const std::uint64_t first = inside.start - std::min(reach, inside.start);
  bytes.resize(module.view().read(first, bytes));
  for (std::size_t i = 0; i + 2 <= bytes.size(); ++i) {
    const std::uint8_t opcode = bytes[i];
    if (opcode != 0xEB && (opcode & 0xF0U) != 0x70 && (opcode & 0xFCU) != 0xE0) continue;
    const std::uint64_t target =
        first + i + 2 + static_cast<std::uint64_t>(std::int64_t{static_cast<std::int8_t>(bytes[i + 1])});
    if (inside.contains(target) && module.is_instruction(first + i)) return true;
  }
  return false;
}

bool overlaps(const AddressRange& a, const AddressRange& b) {
  return a.start < b.end && b.start < a.end;
}

/// What the function itself shows; jumps from elsewhere are looked for afterwards, for all sites at once.
StubRoom room_in_function(const ModuleCode& module, const CodeSite& site) {
  if (!site.bounds.entry_known)
    return no_room("no function boundary is known, other code may jump to the call");
  if (compares_its_counter(site.bounds.name))
    return no_room("thread cancellation depends on the call being where it is");
  const FunctionCode& code = module.code(site.bounds);
  const std::ptrdiff_t call = code.index_of(site.address);
  if (call < 0) return no_room("the function could not be decoded up to the call");
  if (code.unresolved_jump) return no_room("a jump in the function may go anywhere");
  if (site.next - site.address != 2) return no_room("the system call instruction has prefixes");

  std::uint64_t expected = site.address;
  for (std::ptrdiff_t i = call - 1; i >= 0 && i >= call - static_cast<std::ptrdiff_t>(most_moved); --i) {
    const Instruction& each = code.instructions[static_cast<std::size_t>(i)];
    if (each.next() != expected || each.length == 0) break;
    if (each.flow != Flow::next)
      return no_room("a jump or call comes before the first instruction of 5 bytes");
    expected = each.address;
    if (each.length < jump_length) continue;
    StubRoom room;
    room.address = each.address;
    room.length = each.length;
    room.code.resize(site.address - each.address);
    room.code.resize(module.view().read(each.address, room.code));
    const AddressRange replaced{each.address, site.next};
    for (const AddressRange& patched : code.patched)
      if (overlaps(patched, replaced)) return no_room("the code was patched at run time by somebody else");
    const AddressRange inside{each.address + 1, site.next};
    for (const Instruction& other : code.instructions)
      if (other.target != 0 && inside.contains(other.target))
        return no_room(fmt::format("the instruction at {:#x} jumps past the one of 5 bytes", other.address));
    for (const std::uint64_t target : code.jump_table_targets)
      if (inside.contains(target)) return no_room("a jump table leads past the instruction of 5 bytes");
    if (is_reached_by_short_jump(module, inside))
      return no_room("a jump from another function leads past the instruction of 5 bytes");
    room.possible = true;
    room.reason = fmt::format("'{}' makes room", module.text(each.address));
    return room;
  }
  return no_room("no instruction of 5 bytes comes before the call");
}

}  // namespace

std::vector<StubRoom> find_stub_rooms(const ModuleCode& module, const std::vector<CodeSite>& sites) {
  std::vector<StubRoom> rooms;
  ReferenceQuery query;
  query.branches = true;
  for (const CodeSite& site : sites) {
    rooms.push_back(&module.set() == &x86_64 ? room_in_function(module, site)
                                             : no_room("stubs are made for x86-64 only"));
    if (rooms.back().possible) query.targets.push_back({rooms.back().address + 1, site.next});
  }
  if (query.targets.empty()) return rooms;
  std::sort(query.targets.begin(), query.targets.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.start < b.start; });
  for (const Reference& reference : find_references(module, query))
    for (StubRoom& room : rooms)
      if (room.possible && reference.target > room.address &&
          reference.target <= room.address + room.code.size())
        room =
            no_room(fmt::format("the instruction at {:#x} jumps past the one of 5 bytes", reference.address));
  return rooms;
}

}  // namespace whomap
