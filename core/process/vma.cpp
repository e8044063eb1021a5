// SPDX-License-Identifier: Apache-2.0
#include "core/process/vma.h"

#include <algorithm>
#include <charconv>

#include "core/base/files.h"
#include "core/base/lines.h"
#include "core/process/proc_error.h"

namespace whomap {
namespace {

/// Takes the fields of one line from the left; any step that does not fit makes the whole line fail.
class LineCursor {
 public:
  explicit LineCursor(std::string_view text) : rest_(text) {}

  template <class Number>
  bool number(Number& value, int base) {
    const auto [end, problem] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value, base);
    if (problem != std::errc{}) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }
  bool literal(char expected) {
    if (rest_.empty() || rest_.front() != expected) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool flag(char set, char clear, bool& value) {
    value = literal(set);
    return value || literal(clear);
  }
  void skip_spaces() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }
  [[nodiscard]] std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace

std::optional<Vma> parse_maps_line(std::string_view line) {
  Vma vma;
  LineCursor cursor(line);
  const bool whole =
      cursor.number(vma.start, 16) && cursor.literal('-') && cursor.number(vma.end, 16) &&
      cursor.literal(' ') && cursor.flag('r', '-', vma.readable) && cursor.flag('w', '-', vma.writable) &&
      cursor.flag('x', '-', vma.executable) && cursor.flag('s', 'p', vma.shared) && cursor.literal(' ') &&
      cursor.number(vma.offset, 16) && cursor.literal(' ') && cursor.number(vma.device_major, 16) &&
      cursor.literal(':') && cursor.number(vma.device_minor, 16) && cursor.literal(' ') &&
      cursor.number(vma.inode, 10);
  if (!whole || vma.start >= vma.end) return std::nullopt;
  if (!cursor.rest().empty() && cursor.rest().front() != ' ') return std::nullopt;
  cursor.skip_spaces();
  vma.name = cursor.rest();
  return vma;
}

VmaList parse_maps(std::string_view text) {
  VmaList list;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    if (auto vma = parse_maps_line(line))
      list.vmas.push_back(std::move(*vma));
    else
      list.unparsed.emplace_back(line);
  }
  return list;
}

Result<VmaList> read_maps(pid_t pid) {
  auto text = read_proc_file(pid, "maps");
  if (!text) return tl::make_unexpected(text.error());
  VmaList list = parse_maps(*text);
  // The kernel walks the VMAs anew at each read() of the file, from the address where the last one
  // ended. Neighbours that merged meanwhile come again under their new, lower start.
  std::uint64_t covered = 0;
  for (Vma& vma : list.vmas) {
    if (vma.start < covered) {
      const std::uint64_t start = std::min(covered, vma.end);
      if (vma.file_backed()) vma.offset += start - vma.start;
      vma.start = start;
    }
    covered = std::max(covered, vma.end);
  }
  std::erase_if(list.vmas, [](const Vma& vma) { return vma.start >= vma.end; });
  return list;
}

std::optional<std::uint64_t> max_map_count() {
  const auto text = read_file("/proc/sys/vm/max_map_count");
  std::uint64_t count = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), count).ec != std::errc{})
    return std::nullopt;
  return count;
}

const Vma* find_vma(const std::vector<Vma>& vmas, std::uint64_t address) {
  const auto after = std::upper_bound(vmas.begin(), vmas.end(), address,
                                      [](std::uint64_t wanted, const Vma& vma) { return wanted < vma.end; });
  if (after == vmas.end() || address < after->start) return nullptr;
  return &*after;
}

}  // namespace whomap
