// SPDX-License-Identifier: Apache-2.0
#include "core/regions/smaps.h"

#include <charconv>
#include <limits>

namespace whomap {

const std::array<std::string_view, smaps_field_count> smaps_field_names{
    "Size",          "KernelPageSize", "MMUPageSize",     "Rss",
    "Pss",           "Pss_Dirty",      "Shared_Clean",    "Shared_Dirty",
    "Private_Clean", "Private_Dirty",  "Referenced",      "Anonymous",
    "KSM",           "LazyFree",       "AnonHugePages",   "ShmemPmdMapped",
    "FilePmdMapped", "Shared_Hugetlb", "Private_Hugetlb", "Swap",
    "SwapPss",       "Locked",         "THPeligible",     "ProtectionKey"};

namespace {

/// VMA lines start with lower-case hex digits and '-'; field lines with a name and ':'. A name in a VMA line
/// cannot start a line of its own: the kernel writes its newlines as \012.
bool is_vma_line(std::string_view line) {
  std::size_t i = 0;
  while (i < line.size() && ((line[i] >= '0' && line[i] <= '9') || (line[i] >= 'a' && line[i] <= 'f'))) ++i;
  return i != 0 && i < line.size() && line[i] == '-';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

/// "123 kB" -> 125952, "1" -> 1.
std::optional<std::uint64_t> parse_value(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc{}) return std::nullopt;
  const std::string_view unit = trim({rest, static_cast<std::size_t>(end - rest)});
  if (unit.empty()) return number;
  if (unit != "kB" || number > std::numeric_limits<std::uint64_t>::max() / 1024) return std::nullopt;
  return number * 1024;
}

/// The kernel prints the fields in one order, so the field after the last one found is tried first.
std::optional<std::size_t> find_field(std::string_view name, std::size_t guess) {
  for (std::size_t step = 0; step < smaps_field_count; ++step) {
    const std::size_t at = (guess + step) % smaps_field_count;
    if (smaps_field_names[at] == name) return at;
  }
  return std::nullopt;
}

bool parse_field(std::string_view line, SmapsEntry& entry, std::size_t& guess) {
  const std::size_t colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos || line.find(' ') < colon) return false;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = trim(line.substr(colon + 1));
  if (name == "VmFlags") {
    entry.vm_flags = value;
    return true;
  }
  const auto field = find_field(name, guess);
  if (!field) {
    entry.unknown.emplace_back(name, value);
    return true;
  }
  const auto number = parse_value(value);
  if (!number) return false;
  entry.values[*field] = *number;
  entry.present |= 1U << *field;
  guess = *field + 1;
  return true;
}

}  // namespace

SmapsList parse_smaps(std::string_view text) {
  SmapsList list;
  bool in_entry = false;  // the fields after a VMA line that did not parse belong to no entry
  std::size_t guess = 0;
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    const bool cut = newline == std::string_view::npos;
    const std::string_view line = text.substr(0, newline);
    text.remove_prefix(cut ? text.size() : newline + 1);
    if (line.empty()) continue;
    if (is_vma_line(line)) {
      VmaList parsed = parse_maps(cut ? line : std::string_view(line.data(), line.size() + 1));
      in_entry = parsed.vmas.size() == 1;
      if (in_entry)
        list.entries.emplace_back().vma = std::move(parsed.vmas.front());
      else
        list.unparsed.emplace_back(line);
      guess = 0;
      continue;
    }
    // A cut last line may have lost digits: "Rss: 12" of "Rss: 1234 kB".
    const bool whole = !cut || line.ends_with(" kB");
    if (!in_entry || !whole || !parse_field(line, list.entries.back(), guess))
      list.unparsed.emplace_back(line);
  }
  return list;
}

}  // namespace whomap
