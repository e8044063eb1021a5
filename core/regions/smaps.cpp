// SPDX-License-Identifier: Apache-2.0
#include "core/regions/smaps.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

namespace whomap {

const std::array<std::string_view, smaps_field_count> smaps_field_names{"Size",
                                                                        "KernelPageSize",
                                                                        "MMUPageSize",
                                                                        "Rss",
                                                                        "Pss",
                                                                        "Pss_Dirty",
                                                                        "Pss_Anon",
                                                                        "Pss_File",
                                                                        "Pss_Shmem",
                                                                        "Shared_Clean",
                                                                        "Shared_Dirty",
                                                                        "Private_Clean",
                                                                        "Private_Dirty",
                                                                        "Referenced",
                                                                        "Anonymous",
                                                                        "KSM",
                                                                        "LazyFree",
                                                                        "AnonHugePages",
                                                                        "ShmemPmdMapped",
                                                                        "FilePmdMapped",
                                                                        "Shared_Hugetlb",
                                                                        "Private_Hugetlb",
                                                                        "Swap",
                                                                        "SwapPss",
                                                                        "Locked",
                                                                        "THPeligible",
                                                                        "ProtectionKey"};

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

std::optional<std::size_t> find_field(std::string_view name) {
  for (std::size_t at = 0; at < smaps_field_count; ++at)
    if (smaps_field_names[at] == name) return at;
  return std::nullopt;
}

}  // namespace

/// The kernel prints the fields in one order and one form, "Rss:      12 kB": with 100,000 mappings there are
/// two million of these lines, and reading them must not cost more than the kernel's writing them. Takes as
/// many of them off the text as follow each other.
void SmapsParser::usual_fields(std::string_view& text) {
  constexpr std::size_t longest_line = 64;  // with it in the text, no line below can end outside
  while (in_entry_ && text.size() >= longest_line && guess_ < smaps_field_count) {
    const char* at = text.data();
    std::size_t field = guess_;
    // The widest gap of smaps is that of the three fields that only smaps_rollup has.
    const std::size_t last = std::min(field + 4, smaps_field_count);
    while (field < last &&
           !(at[smaps_field_names[field].size()] == ':' &&
             std::memcmp(at, smaps_field_names[field].data(), smaps_field_names[field].size()) == 0))
      ++field;
    if (field == last) return;
    at += smaps_field_names[field].size() + 1;
    const char* const end = text.data() + longest_line;
    while (at < end && *at == ' ') ++at;
    const char* const first_digit = at;
    std::uint64_t number = 0;
    constexpr std::ptrdiff_t digits_that_fit = 15;  // times 1024, in 64 bits
    while (at < end && at - first_digit < digits_that_fit && *at >= '0' && *at <= '9')
      number = number * 10 + static_cast<std::uint64_t>(*at++ - '0');
    if (at == first_digit || end - at < 4) return;
    if (std::memcmp(at, " kB\n", 4) == 0) {
      number *= 1024;
      at += 4;
    } else if (*at == '\n') {
      ++at;
    } else {
      return;
    }
    entry_.values[field] = number;
    entry_.present |= 1U << field;
    guess_ = field + 1;
    text.remove_prefix(static_cast<std::size_t>(at - text.data()));
  }
}

bool SmapsParser::field(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == 0 || colon == std::string_view::npos || text.find(' ') < colon) return false;
  const std::string_view name = text.substr(0, colon);
  const std::string_view value = trim(text.substr(colon + 1));
  if (name == "VmFlags") {
    entry_.vm_flags = value;
    return true;
  }
  const auto at = find_field(name);
  if (!at) {
    entry_.unknown.emplace_back(name, value);
    return true;
  }
  const auto number = parse_value(value);
  if (!number) return false;
  entry_.values[*at] = *number;
  entry_.present |= 1U << *at;
  guess_ = *at + 1;
  return true;
}

void SmapsParser::hand_out() {
  if (in_entry_) on_entry_(entry_);
  in_entry_ = false;
}

void SmapsParser::line(std::string_view text, bool cut) {
  if (text.empty()) return;
  if (is_vma_line(text)) {
    hand_out();
    auto vma = parse_maps_line(text);
    in_entry_ = vma.has_value();
    if (!in_entry_) {
      unparsed_.emplace_back(text);
      return;
    }
    entry_.vma = std::move(*vma);
    entry_.present = 0;
    entry_.vm_flags.clear();
    entry_.unknown.clear();
    guess_ = 0;
    return;
  }
  // A cut last line may have lost digits: "Rss: 12" of "Rss: 1234 kB".
  const bool whole = !cut || text.ends_with(" kB");
  if (!in_entry_ || !whole || !field(text)) unparsed_.emplace_back(text);
}

void SmapsParser::feed(std::string_view piece) {
  if (!carry_.empty()) {
    const std::size_t newline = piece.find('\n');
    carry_.append(piece.substr(0, newline));
    if (newline == std::string_view::npos) return;
    const std::string whole = std::move(carry_);
    carry_.clear();
    line(whole, false);
    piece.remove_prefix(newline + 1);
  }
  for (;;) {
    usual_fields(piece);
    const std::size_t newline = piece.find('\n');
    if (newline == std::string_view::npos) break;
    line(piece.substr(0, newline), false);
    piece.remove_prefix(newline + 1);
  }
  carry_ = piece;
}

void SmapsParser::finish() {
  const std::string last = std::move(carry_);
  carry_.clear();
  line(last, true);
  hand_out();
}

SmapsList parse_smaps(std::string_view text) {
  SmapsList list;
  SmapsParser parser([&](SmapsEntry& entry) { list.entries.push_back(std::move(entry)); });
  parser.feed(text);
  parser.finish();
  list.unparsed = parser.unparsed();
  return list;
}

}  // namespace whomap
