// SPDX-License-Identifier: Apache-2.0
#include "core/plan/function_code.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace whomap {
namespace {

/// A function larger than this is not a function but data, or damage: 16 MiB.
constexpr std::uint64_t largest_function = std::uint64_t{16} << 20;

std::vector<std::uint8_t> read_code(const CodeView& view, AddressRange range, bool original) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(std::min(range.size(), largest_function)));
  bytes.resize(original ? view.read_original(range.start, bytes) : view.read(range.start, bytes));
  return bytes;
}

/// Where the file's instructions start, linearly from its start.
std::set<std::size_t> original_starts(const InstructionSet& set, const std::vector<std::uint8_t>& bytes) {
  std::set<std::size_t> starts;
  for (std::size_t at = 0; at < bytes.size();) {
    starts.insert(at);
    at += std::max<std::size_t>(set.length(std::span(bytes).subspan(at)), 1);
  }
  return starts;
}

/// The bytes that differ. Equal bytes between two different ones within a patch (a jump's operand may repeat
/// the old byte) count as patched: differences closer than an instruction's length are one patch.
std::vector<AddressRange> differences(const std::vector<std::uint8_t>& now,
                                      const std::vector<std::uint8_t>& file) {
  std::vector<AddressRange> result;
  for (std::size_t i = 0; i < std::min(now.size(), file.size()); ++i) {
    if (now[i] == file[i]) continue;
    if (!result.empty() && i - result.back().end < 5)
      result.back().end = i + 1;
    else
      result.push_back({i, i + 1});
  }
  return result;
}

/// Entries of a possible jump table at `address`: 4-byte distances from the table (position-independent
/// code), or 8-byte addresses. Only a prefix of entries that all point at instructions of the function
/// counts.
void read_jump_table(const CodeView& view, std::uint64_t address, FunctionCode& code, bool& found) {
  constexpr std::size_t most_entries = 1024;
  std::vector<std::uint8_t> bytes(most_entries * 8);
  bytes.resize(view.read_data(address, bytes));
  const auto collect = [&]<class Entry>(Entry, auto target_of) {
    for (std::size_t i = 0; (i + 1) * sizeof(Entry) <= bytes.size(); ++i) {
      Entry entry{};
      std::memcpy(&entry, bytes.data() + i * sizeof(Entry), sizeof(Entry));
      const std::uint64_t target = target_of(entry);
      if (code.index_of(target) < 0) break;
      code.jump_table_targets.push_back(target);
      found = true;
    }
  };
  collect(std::int32_t{},
          [&](std::int32_t entry) { return address + static_cast<std::uint64_t>(std::int64_t{entry}); });
  collect(std::uint64_t{}, [](std::uint64_t entry) { return entry; });
}

void resolve_indirect_jumps(const CodeView& view, FunctionCode& code) {
  const bool has_jump =
      std::any_of(code.instructions.begin(), code.instructions.end(),
                  [](const Instruction& each) { return each.flow == Flow::indirect_jump && each.slot == 0; });
  if (!has_jump) return;
  bool found = false;
  for (const Instruction& each : code.instructions)
    if (each.table != 0 && !code.range.contains(each.table)) read_jump_table(view, each.table, code, found);
  code.unresolved_jump = !found;
  std::sort(code.jump_table_targets.begin(), code.jump_table_targets.end());
  code.jump_table_targets.erase(std::unique(code.jump_table_targets.begin(), code.jump_table_targets.end()),
                                code.jump_table_targets.end());
}

/// A patched entry's jump: e9 rel32; ff 25 (through memory); or 48 b8 imm64 ff e0 (and its kin for other
/// registers).
std::optional<std::uint64_t> entry_jump(const CodeView& view, const FunctionCode& code) {
  std::optional<std::uint64_t> loaded;
  for (std::size_t i = 0; i < std::min<std::size_t>(code.instructions.size(), 3); ++i) {
    const Instruction& each = code.instructions[i];
    if (each.flow == Flow::jump) return each.target;
    if (each.flow == Flow::indirect_jump) {
      if (each.slot == 0) return loaded;
      std::uint64_t pointer = 0;
      std::vector<std::uint8_t> bytes(sizeof pointer);
      if (view.read_data(each.slot, bytes) != bytes.size()) return std::nullopt;
      std::memcpy(&pointer, bytes.data(), sizeof pointer);
      return pointer;
    }
    if (each.effect == Effect::constant)
      loaded = static_cast<std::uint64_t>(each.immediate);
    else if (each.clobbered != 0)
      return std::nullopt;
  }
  return std::nullopt;
}

/// `patches` are offsets of changed bytes, `file_starts` the file's instructions, where anything was changed.
void decode_into(FunctionCode& code, const InstructionSet& set, const std::vector<std::uint8_t>& bytes,
                 const std::vector<AddressRange>& patches, const std::set<std::size_t>& file_starts) {
  const auto in_patch = [&](std::size_t at) {
    return std::any_of(patches.begin(), patches.end(),
                       [&](const AddressRange& each) { return each.contains(at); });
  };
  for (std::size_t at = 0; at < bytes.size();) {
    if (!patches.empty() && !in_patch(at) && !file_starts.contains(at)) {
      const auto next = file_starts.upper_bound(at);
      if (next == file_starts.end()) break;
      at = *next;
      continue;
    }
    const Instruction instruction = set.decode(std::span(bytes).subspan(at), code.range.start + at);
    if (instruction.length == 0) {
      code.undecodable = true;
      ++at;
      continue;
    }
    code.instructions.push_back(instruction);
    at += instruction.length;
  }
}

}  // namespace

std::ptrdiff_t FunctionCode::index_of(std::uint64_t address) const {
  const auto at =
      std::lower_bound(instructions.begin(), instructions.end(), address,
                       [](const Instruction& each, std::uint64_t wanted) { return each.address < wanted; });
  return at != instructions.end() && at->address == address ? at - instructions.begin() : -1;
}

FunctionCode decode_function(const CodeView& view, const InstructionSet& set, AddressRange range,
                             bool entry_known) {
  FunctionCode code{.range = range, .entry_known = entry_known};
  const std::vector<std::uint8_t> bytes = read_code(view, range, false);
  std::vector<AddressRange> patches;
  std::set<std::size_t> file_starts;
  if (view.has_changed_pages(range)) {
    const std::vector<std::uint8_t> file = read_code(view, range, true);
    patches = differences(bytes, file);
    if (!patches.empty()) file_starts = original_starts(set, file);
  }
  decode_into(code, set, bytes, patches, file_starts);
  for (const AddressRange& each : patches)
    code.patched.push_back({range.start + each.start, range.start + each.end});
  if (entry_known && !patches.empty() && patches.front().start < 16) code.entry_jump = entry_jump(view, code);
  resolve_indirect_jumps(view, code);
  return code;
}

FunctionCode decode_original(const CodeView& view, const InstructionSet& set, AddressRange range,
                             bool entry_known) {
  FunctionCode code{.range = range, .entry_known = entry_known};
  decode_into(code, set, read_code(view, range, true), {}, {});
  resolve_indirect_jumps(view, code);
  return code;
}

bool decodes_to(const CodeView& view, const InstructionSet& set, std::uint64_t start, std::uint64_t address) {
  if (address < start || address - start > largest_function) return false;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(address - start) + set.longest);
  bytes.resize(view.read(start, bytes));
  std::size_t at = 0;
  while (at < bytes.size() && start + at < address)
    at += std::max<std::size_t>(set.length(std::span(bytes).subspan(at)), 1);
  return start + at == address;
}

}  // namespace whomap
