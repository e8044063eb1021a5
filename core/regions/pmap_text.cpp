// SPDX-License-Identifier: Apache-2.0
#include "core/regions/pmap_text.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/base/lines.h"

namespace whomap {
namespace {

std::string_view next_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

template <class Number>
bool read_number(std::string_view text, int base, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, value, base);
  return problem == std::errc{} && rest == end && !text.empty();
}

std::optional<std::uint64_t> kilobytes(std::string_view text) {
  std::uint64_t number = 0;
  if (!read_number(text, 10, number) || number > std::numeric_limits<std::uint64_t>::max() / 1024)
    return std::nullopt;
  return number * 1024;
}

/// The columns as their names stand; "Mapping" is the last one, may be empty, and may hold spaces.
class Columns {
 public:
  explicit Columns(std::string_view line) {
    mapping_at_ = line.find(" Mapping");
    std::string_view rest = line.substr(0, mapping_at_);
    for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest))
      names_.emplace_back(word);
  }

  std::optional<Region> read(std::string_view line) const {
    Region region;
    Vma& vma = region.vma;
    std::uint64_t size = 0;
    std::string_view rest = line;
    for (const std::string& name : names_) {
      if (name == "VmFlags") {  // words; pmap pads them to the place of the last column
        const std::size_t used = line.size() - rest.size();
        if (mapping_at_ == std::string_view::npos || used > mapping_at_) return std::nullopt;
        std::string_view flags = line.substr(used, mapping_at_ - used);
        while (flags.starts_with(' ')) flags.remove_prefix(1);
        while (flags.ends_with(' ')) flags.remove_suffix(1);
        region.vm_flags = flags;
        rest = line.substr(std::min(mapping_at_, line.size()));
        continue;
      }
      if (!read_field(name, next_word(rest), region, size)) return std::nullopt;
    }
    if (size == 0 || size > std::numeric_limits<std::uint64_t>::max() - vma.start) return std::nullopt;
    vma.end = vma.start + size;
    if (rest.starts_with(' ')) rest.remove_prefix(1);
    while (rest.starts_with(' ')) rest.remove_prefix(1);
    while (rest.ends_with(' ')) rest.remove_suffix(1);
    if (rest == "[ anon ]") rest = {};
    vma.name = rest == "[ stack ]" ? "[stack]" : std::string(rest);
    region.deleted = deleted_by_name(vma);
    return region;
  }

 private:
  static bool read_field(const std::string& name, std::string_view word, Region& region,
                         std::uint64_t& size) {
    Vma& vma = region.vma;
    if (name == "Address") return read_number(word, 16, vma.start);
    if (name == "Perm" || name == "Mode") {
      if (word.size() < 4) return false;
      vma.readable = word[0] == 'r';
      vma.writable = word[1] == 'w';
      vma.executable = word[2] == 'x';
      vma.shared = word[3] == 's';
      return true;
    }
    if (name == "Offset") return read_number(word, 16, vma.offset);
    if (name == "Inode") return read_number(word, 10, vma.inode);
    if (name == "Device") {
      const std::size_t colon = word.find(':');
      return colon != std::string_view::npos && read_number(word.substr(0, colon), 16, vma.device_major) &&
             read_number(word.substr(colon + 1), 16, vma.device_minor);
    }
    const auto bytes = kilobytes(word);
    if (name == "Size" || name == "Kbytes") {
      size = bytes.value_or(0);
      return bytes.has_value();
    }
    if (name == "Rss" || name == "RSS") region.rss = bytes;
    if (name == "Anonymous") region.anonymous = bytes;
    if (name == "Swap") region.swap = bytes;
    if (name == "LazyFree") region.lazy_free = bytes;
    if (name == "AnonHugePages") region.anon_huge_pages = bytes;
    return !word.empty();
  }

  std::vector<std::string> names_;
  std::size_t mapping_at_ = 0;
};

bool is_heading(std::string_view line) {
  const std::size_t colon = line.find_first_not_of("0123456789");
  return colon != 0 && colon != std::string_view::npos && line.substr(colon, 2) == ": ";
}

/// "====== ====", "--------- ----", and the sums below.
bool is_rule_or_sum(std::string_view line) {
  std::string_view rest = line;
  const std::string_view word = next_word(rest);
  return word.find_first_not_of("=-") == std::string_view::npos || word == "total" ||
         line.ends_with(" KB ") || line.ends_with(" KB");
}

}  // namespace

std::vector<Snapshot> snapshots_from_pmap(std::string_view text) {
  std::vector<Snapshot> snapshots;
  std::optional<Columns> columns;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (is_heading(line)) {
      snapshots.emplace_back();
      columns.reset();
      continue;
    }
    if (line.empty()) continue;
    if (snapshots.empty()) snapshots.emplace_back();
    Snapshot& snapshot = snapshots.back();
    std::string_view rest = line;
    if (next_word(rest) == "Address") {
      columns.emplace(line);
      continue;
    }
    if (is_rule_or_sum(line)) continue;
    auto region = columns ? columns->read(line) : std::nullopt;
    const bool ascending =
        region && (snapshot.regions.empty() || snapshot.regions.back().vma.end <= region->vma.start);
    if (ascending)
      snapshot.regions.push_back(std::move(*region));
    else
      snapshot.unparsed.emplace_back(line);
  }
  std::erase_if(snapshots,
                [](const Snapshot& each) { return each.regions.empty() && each.unparsed.empty(); });
  for (Snapshot& snapshot : snapshots)
    if (std::none_of(snapshot.regions.begin(), snapshot.regions.end(),
                     [](const Region& region) { return region.rss.has_value(); }))
      snapshot.without_smaps = "this output of pmap has no resident sizes";
  return snapshots;
}

}  // namespace whomap
