// SPDX-License-Identifier: Apache-2.0
#include "core/symbols/compile_units.h"

#include <dwarf.h>

#include <algorithm>

#include "core/symbols/function_name.h"

namespace whomap {
namespace {

/// Deeper nesting than any compiler writes; recursion over a damaged file ends here.
constexpr int deepest = 256;
/// DIEs looked at per question: DW_AT_sibling of a damaged file may lead in circles.
constexpr std::uint64_t visit_limit = 50'000'000;

template <class Visit>
void for_each_range(Dwarf_Die die, Visit visit) {
  Dwarf_Addr base = 0, start = 0, end = 0;
  for (std::ptrdiff_t at = 0; (at = dwarf_ranges(&die, at, &base, &start, &end)) > 0;)
    if (start < end) visit(AddressRange{start, end});
}

template <class Entry>
void sort_by_start(std::vector<Entry>& entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.range.start < b.range.start; });
}

/// The entry that holds the address and starts last. Entries of one linker output do not overlap, save
/// for functions that the linker dropped and left at address 0, and for nested ones.
template <class Entry>
const Entry* find_in(const std::vector<Entry>& entries, std::uint64_t address) {
  auto next =
      std::upper_bound(entries.begin(), entries.end(), address,
                       [](std::uint64_t value, const Entry& each) { return value < each.range.start; });
  constexpr int overlaps_tolerated = 64;
  for (int i = 0; i < overlaps_tolerated && next != entries.begin(); ++i)
    if ((--next)->range.contains(address)) return &*next;
  return nullptr;
}

}  // namespace

CompileUnits::CompileUnits(Dwarf* dwarf) {
  // Their own ranges and not .debug_aranges, which clang leaves out. The split unit (last argument) is
  // not asked for: libdw would open a file that the target's file names.
  Dwarf_CU* cu = nullptr;
  Dwarf_Die unit;
  std::uint8_t type = 0;
  while (dwarf_get_units(dwarf, cu, &cu, nullptr, &type, &unit, nullptr) == 0) {
    if (type != DW_UT_compile && type != DW_UT_skeleton) continue;
    for_each_range(unit, [&](const AddressRange& range) { ranges_.push_back({range, unit}); });
  }
  sort_by_start(ranges_);
}

CompileUnit* CompileUnits::find(std::uint64_t address) {
  const Range* const range = find_in(ranges_, address);
  if (range == nullptr) return nullptr;
  Dwarf_Die unit = range->unit;
  auto& known = units_[dwarf_dieoffset(&unit)];
  if (!known) known = std::make_unique<CompileUnit>(unit);
  return known.get();
}

void CompileUnit::collect_functions(Dwarf_Die parent, int depth) {
  Dwarf_Die die;
  if (depth > deepest || dwarf_child(&parent, &die) != 0) return;
  do {
    if (++visited_ > visit_limit) return;
    switch (dwarf_tag(&die)) {
      case DW_TAG_subprogram:
        for_each_range(die, [&](const AddressRange& range) { functions_.push_back({range, die}); });
        collect_functions(die, depth + 1);  // nested functions
        break;
      case DW_TAG_namespace:
      case DW_TAG_module:
      case DW_TAG_class_type:
      case DW_TAG_structure_type:
      case DW_TAG_union_type:
      case DW_TAG_lexical_block: collect_functions(die, depth + 1); break;
      default: break;
    }
  } while (dwarf_siblingof(&die, &die) == 0);
}

bool CompileUnit::descend(Dwarf_Die scope, std::uint64_t address, FunctionAt& found, int depth) {
  Dwarf_Die die;
  if (depth > deepest || dwarf_child(&scope, &die) != 0) return false;
  do {
    if (++visited_ > visit_limit) return false;
    const int tag = dwarf_tag(&die);
    if (tag != DW_TAG_lexical_block && tag != DW_TAG_inlined_subroutine) continue;
    if (dwarf_haspc(&die, address) == 1) {
      if (tag == DW_TAG_inlined_subroutine) found.inlined.push_back(die);
      descend(die, address, found, depth + 1);
      return true;
    }
    // A block without ranges is only a scope; what it holds has ranges of its own.
    Dwarf_Addr base = 0, start = 0, end = 0;
    if (tag == DW_TAG_lexical_block && dwarf_ranges(&die, 0, &base, &start, &end) == 0 &&
        descend(die, address, found, depth + 1))
      return true;
  } while (dwarf_siblingof(&die, &die) == 0);
  return false;
}

void CompileUnit::need_functions() {
  if (collected_) return;
  collected_ = true;
  visited_ = 0;
  collect_functions(unit_, 0);
  sort_by_start(functions_);
}

std::optional<FunctionAt> CompileUnit::function_at(std::uint64_t address) {
  need_functions();
  const Function* const function = find_in(functions_, address);
  if (function == nullptr) return std::nullopt;
  FunctionAt found{function->die, {}};
  visited_ = 0;
  descend(function->die, address, found, 0);
  return found;
}

std::optional<std::uint64_t> CompileUnit::entry_of(Dwarf_Die function) {
  need_functions();
  Dwarf_Die wanted = declaration_of(function);
  std::optional<std::uint64_t> entry;
  for (const Function& each : functions_) {
    Dwarf_Die declaration = declaration_of(each.die);
    Dwarf_Die die = each.die;
    Dwarf_Addr address = 0;
    if (declaration.addr != wanted.addr || dwarf_entrypc(&die, &address) != 0) continue;
    if (entry && *entry != address) return std::nullopt;
    entry = address;
  }
  return entry;
}

void CompileUnit::collect_calls(Dwarf_Die scope, std::vector<CallSite>& calls, int depth) {
  Dwarf_Die die;
  if (depth > deepest || dwarf_child(&scope, &die) != 0) return;
  do {
    if (++visited_ > visit_limit) return;
    const int tag = dwarf_tag(&die);
    if (tag == DW_TAG_lexical_block || tag == DW_TAG_inlined_subroutine) collect_calls(die, calls, depth + 1);
    if (tag != DW_TAG_call_site && tag != DW_TAG_GNU_call_site) continue;
    CallSite call;
    Dwarf_Attribute memory;
    Dwarf_Attribute* address = dwarf_attr(&die, DW_AT_call_return_pc, &memory);
    if (address == nullptr) address = dwarf_attr(&die, DW_AT_low_pc, &memory);
    if (dwarf_formaddr(address, &call.return_address) != 0) continue;
    call.tail =
        dwarf_hasattr(&die, DW_AT_call_tail_call) != 0 || dwarf_hasattr(&die, DW_AT_GNU_tail_call) != 0;
    Dwarf_Attribute* origin = dwarf_attr(&die, DW_AT_call_origin, &memory);
    if (origin == nullptr) origin = dwarf_attr(&die, DW_AT_abstract_origin, &memory);
    Dwarf_Die callee;
    if (origin != nullptr && dwarf_formref_die(origin, &callee) != nullptr) call.callee = callee;
    calls.push_back(call);
  } while (dwarf_siblingof(&die, &die) == 0);
}

std::vector<CallSite> CompileUnit::calls_of(Dwarf_Die function) {
  std::vector<CallSite> calls;
  visited_ = 0;
  collect_calls(function, calls, 0);
  return calls;
}

std::optional<SourceLine> CompileUnit::call_line(Dwarf_Die inlined) {
  Dwarf_Attribute memory;
  Dwarf_Word file = 0, line = 0;
  if (dwarf_formudata(dwarf_attr(&inlined, DW_AT_call_line, &memory), &line) != 0 || line == 0 ||
      line > UINT32_MAX || dwarf_formudata(dwarf_attr(&inlined, DW_AT_call_file, &memory), &file) != 0)
    return std::nullopt;
  Dwarf_Files* files = nullptr;
  std::size_t count = 0;
  if (dwarf_getsrcfiles(&unit_, &files, &count) != 0 || file >= count) return std::nullopt;
  const char* const name = dwarf_filesrc(files, file, nullptr, nullptr);
  if (name == nullptr) return std::nullopt;
  return SourceLine{name, static_cast<std::uint32_t>(line)};
}

}  // namespace whomap
