// SPDX-License-Identifier: Apache-2.0
#include "core/plan/references.h"

#include <algorithm>
#include <cstring>

namespace whomap {
namespace {

constexpr std::size_t chunk_size = std::size_t{256} << 10;

/// Calls visit(address of bytes[0], bytes) for overlapping chunks of all areas; a chunk's last `overlap`
/// bytes come again at the start of the next.
template <class Visit>
void for_each_chunk(const CodeView& view, std::size_t overlap, Visit visit) {
  std::vector<std::uint8_t> buffer(chunk_size + overlap);
  for (const AddressRange& area : view.areas()) {
    for (std::uint64_t at = area.start; at < area.end;) {
      const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), area.end - at));
      const std::size_t got = view.read(at, std::span(buffer).first(wanted));
      if (got != 0) visit(at, std::span<const std::uint8_t>(buffer).first(got));
      if (got < wanted)
        at = (at + got) / 4096 * 4096 + 4096;  // past the page that cannot be read
      else
        at += std::min(got, chunk_size);
    }
  }
}

bool in_ranges(const std::vector<AddressRange>& ranges, std::uint64_t address) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), address,
                       [](std::uint64_t wanted, const AddressRange& each) { return wanted < each.end; });
  return after != ranges.end() && after->start <= address;
}

std::uint64_t relative(const std::uint8_t* field, std::uint64_t next) {
  std::int32_t distance = 0;
  std::memcpy(&distance, field, sizeof distance);
  return next + static_cast<std::uint64_t>(std::int64_t{distance});
}

/// Calls visit(index) where bytes[index] is 0xE8 or 0xE9. Eight bytes at a time: most words hold neither, and
/// the subtraction borrows into the top bit of a byte that is zero after the xor (Warren, Hacker's Delight,
/// 6-1).
template <class Visit>
void for_each_direct(std::span<const std::uint8_t> bytes, Visit visit) {
  constexpr std::uint64_t each_byte = 0x0101010101010101;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, &bytes[i], sizeof word);
    const std::uint64_t zero_if_found = (word & ~each_byte) ^ 0xE8 * each_byte;
    if (((zero_if_found - each_byte) & ~zero_if_found & 0x80 * each_byte) == 0) continue;
    for (std::size_t j = i; j < i + 8; ++j)
      if ((bytes[j] & 0xFEU) == 0xE8) visit(j);
  }
  for (; i < bytes.size(); ++i)
    if ((bytes[i] & 0xFEU) == 0xE8) visit(i);
}

template <class Visit>
void for_each_byte(std::span<const std::uint8_t> bytes, std::uint8_t wanted, Visit visit) {
  const std::uint8_t* at = bytes.data();
  const std::uint8_t* const end = at + bytes.size();
  while (at < end && (at = static_cast<const std::uint8_t*>(
                          std::memchr(at, wanted, static_cast<std::size_t>(end - at)))) != nullptr)
    visit(static_cast<std::size_t>(at++ - bytes.data()));
}

/// Opcodes: Intel SDM volume 2, CALL (E8, FF /2), JMP (E9, FF /4), Jcc (0F 80..8F); all with rel32 or
/// rip-relative disp32 operands.
template <class Add>
void x86_references(std::uint64_t address, std::span<const std::uint8_t> bytes, const ReferenceQuery& query,
                    Add add) {
  using Kind = Reference::Kind;
  if (!query.targets.empty())
    for_each_direct(bytes, [&](std::size_t i) {
      if (i + 5 <= bytes.size())
        add(address + i, relative(&bytes[i + 1], address + i + 5),
            bytes[i] == 0xE8 ? Kind::call : Kind::jump);
    });
  if (query.branches)
    for_each_byte(bytes, 0x0F, [&](std::size_t i) {
      if (i + 6 <= bytes.size() && (bytes[i + 1] & 0xF0U) == 0x80)
        add(address + i, relative(&bytes[i + 2], address + i + 6), Kind::branch);
    });
  if (!query.slots.empty())
    for_each_byte(bytes, 0xFF, [&](std::size_t i) {
      if (i + 6 <= bytes.size() && (bytes[i + 1] == 0x15 || bytes[i + 1] == 0x25))
        add(address + i, relative(&bytes[i + 2], address + i + 6),
            bytes[i + 1] == 0x15 ? Kind::call_through : Kind::jump_through);
    });
}

template <class Add>
void decoded_references(const InstructionSet& set, std::uint64_t address, std::span<const std::uint8_t> bytes,
                        Add add) {
  using Kind = Reference::Kind;
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    const Instruction each = set.decode(bytes.subspan(i, 4), address + i);
    if (each.flow == Flow::call) add(each.address, each.target, Kind::call);
    if (each.flow == Flow::jump) add(each.address, each.target, Kind::jump);
    if (each.flow == Flow::branch) add(each.address, each.target, Kind::branch);
  }
}

}  // namespace

std::vector<Reference> find_references(const ModuleCode& module, const ReferenceQuery& query) {
  std::vector<Reference> found;
  const std::vector<AddressRange>& targets = query.targets;
  const std::vector<std::uint64_t>& slots = query.slots;
  if (targets.empty() && slots.empty()) return found;
  const AddressRange reach =
      targets.empty() ? AddressRange{} : AddressRange{targets.front().start, targets.back().end};
  const auto add = [&](std::uint64_t address, std::uint64_t target, Reference::Kind kind) {
    const bool through = kind == Reference::Kind::call_through || kind == Reference::Kind::jump_through;
    if (through ? !std::binary_search(slots.begin(), slots.end(), target)
                : !reach.contains(target) || !in_ranges(targets, target))
      return;
    found.push_back({address, target, kind});
  };
  const bool is_x86 = &module.set() == &x86_64;
  for_each_chunk(module.view(), is_x86 ? 6 : 0,
                 [&](std::uint64_t address, std::span<const std::uint8_t> bytes) {
                   if (is_x86)
                     x86_references(address, bytes, query, add);
                   else
                     decoded_references(module.set(), address, bytes, add);
                 });
  const auto before = [](const Reference& a, const Reference& b) { return a.address < b.address; };
  std::sort(found.begin(), found.end(), before);
  found.erase(std::unique(found.begin(), found.end(),
                          [](const Reference& a, const Reference& b) { return a.address == b.address; }),
              found.end());
  std::erase_if(found, [&](const Reference& each) { return !module.is_instruction(each.address); });
  return found;
}

std::vector<std::uint64_t> find_system_call_bytes(const CodeView& view, const InstructionSet& set) {
  std::vector<std::uint64_t> found;
  if (&set == &x86_64) {
    // 05 is rarer in code than 0f, and memchr is several times as fast as memmem for two bytes.
    for_each_chunk(view, 1, [&](std::uint64_t address, std::span<const std::uint8_t> bytes) {
      for_each_byte(bytes.subspan(1), 0x05, [&](std::size_t i) {
        if (bytes[i] == 0x0F) found.push_back(address + i);
      });
    });
  } else {
    constexpr std::uint32_t svc_0 = 0xD4000001;  // Arm ARM, C6.2 SVC
    for_each_chunk(view, 0, [&](std::uint64_t address, std::span<const std::uint8_t> bytes) {
      for (std::size_t i = (4 - address % 4) % 4; i + 4 <= bytes.size(); i += 4) {
        std::uint32_t word = 0;
        std::memcpy(&word, &bytes[i], sizeof word);
        if (word == svc_0) found.push_back(address + i);
      }
    });
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace whomap
