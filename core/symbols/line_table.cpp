// SPDX-License-Identifier: Apache-2.0
#include "core/symbols/line_table.h"

#include <algorithm>

namespace whomap {

LineTable::LineTable(Dwarf_Die unit) {
  Dwarf_Lines* lines = nullptr;
  std::size_t count = 0;
  if (dwarf_getsrclines(&unit, &lines, &count) != 0) return;
  rows_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    Dwarf_Line* const line = dwarf_onesrcline(lines, i);
    Row row;
    int number = 0;
    if (line == nullptr || dwarf_lineaddr(line, &row.address) != 0 || dwarf_lineno(line, &number) != 0)
      continue;
    dwarf_linebeginstatement(line, &row.statement);
    dwarf_lineendsequence(line, &row.end);
    row.line = number > 0 ? static_cast<std::uint32_t>(number) : 0;
    row.file = dwarf_linesrc(line, nullptr, nullptr);
    rows_.push_back(row);
  }
  // An end of a sequence must not hide the sequence that begins at the same address.
  std::stable_sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
    return a.address != b.address ? a.address < b.address : a.end && !b.end;
  });
}

std::optional<SourceLine> LineTable::at(std::uint64_t address) const {
  auto row = std::upper_bound(rows_.begin(), rows_.end(), address,
                              [](std::uint64_t value, const Row& each) { return value < each.address; });
  if (row == rows_.begin()) return std::nullopt;
  --row;
  if (row->end) return std::nullopt;
  // Of several rows for one address the last counts, but one that begins a statement goes first (as in GDB).
  for (auto other = row; !row->statement && other != rows_.begin();) {
    --other;
    if (other->address != row->address || other->end) break;
    if (other->statement) row = other;
  }
  if (row->line == 0 || row->file == nullptr) return std::nullopt;
  return SourceLine{row->file, row->line};
}

}  // namespace whomap
