// SPDX-License-Identifier: Apache-2.0
#include "core/unwind/cfi.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include <dwarf.h>
#include <elf.h>

#include "core/elf/go_functions.h"

namespace whomap {
namespace {

struct FreeFrame {
  void operator()(Dwarf_Frame* frame) const { std::free(frame); }  // libdw.h: "a malloc'd pointer"
};

bool fits(std::uint64_t value) {
  const auto number = static_cast<std::int64_t>(value);
  return number > Row::not_saved && number <= std::numeric_limits<std::int32_t>::max();
}

/// "saved at CFA + n" as libdw writes it: DW_OP_call_frame_cfa, then DW_OP_plus_uconst unless n is 0.
bool saved_at_cfa(const std::vector<Dwarf_Op>& operations, std::int32_t& offset) {
  if (operations.empty() || operations.size() > 2 || operations[0].atom != DW_OP_call_frame_cfa) return false;
  if (operations.size() == 1) {
    offset = 0;
    return true;
  }
  if (operations[1].atom != DW_OP_plus_uconst || !fits(operations[1].number)) return false;
  offset = static_cast<std::int32_t>(operations[1].number);
  return true;
}

/// "register + n", in either of the two spellings.
bool register_and_offset(const std::vector<Dwarf_Op>& operations, std::uint8_t& number,
                         std::int32_t& offset) {
  if (operations.size() != 1) return false;
  const Dwarf_Op& operation = operations[0];
  if (operation.atom == DW_OP_bregx) {
    if (operation.number >= dwarf_register::rip || !fits(operation.number2)) return false;
    number = static_cast<std::uint8_t>(operation.number);
    offset = static_cast<std::int32_t>(operation.number2);
    return true;
  }
  if (operation.atom < DW_OP_breg0 || operation.atom > DW_OP_breg15 || !fits(operation.number)) return false;
  number = static_cast<std::uint8_t>(operation.atom - DW_OP_breg0);
  offset = static_cast<std::int32_t>(operation.number);
  return true;
}

bool read_rule(Dwarf_Frame* frame, unsigned number, RegisterRule& rule) {
  Dwarf_Op memory[3];
  Dwarf_Op* operations = nullptr;
  std::size_t count = 0;
  if (dwarf_frame_register(frame, static_cast<int>(number), memory, &operations, &count) != 0) return false;
  if (count != 0) {
    rule.kind = RegisterRule::Kind::expression;
    rule.operations.assign(operations, operations + count);
  } else {
    rule.kind = operations == memory ? RegisterRule::Kind::undefined : RegisterRule::Kind::same_value;
  }
  return true;
}

bool read_general(Dwarf_Frame* frame, GeneralRow& row) {
  Dwarf_Op* operations = nullptr;
  std::size_t count = 0;
  if (dwarf_frame_cfa(frame, &operations, &count) != 0 || count == 0) return false;
  row.cfa.assign(operations, operations + count);
  for (unsigned number = 0; number < dwarf_register::count; ++number)
    if (!read_rule(frame, number, row.rules[number])) return false;
  return true;
}

/// The stack pointer of the caller is the CFA unless a rule says otherwise; libdw's x86-64 defaults
/// spell that as DW_OP_call_frame_cfa, DW_OP_stack_value.
bool stack_pointer_is_cfa(const RegisterRule& rule) {
  return rule.operations.size() == 2 && rule.operations[0].atom == DW_OP_call_frame_cfa &&
         rule.operations[1].atom == DW_OP_stack_value;
}

bool is_callee_saved(unsigned number) {
  for (const std::uint8_t saved : dwarf_register::callee_saved)
    if (saved == number) return true;
  return false;
}

bool make_simple(const GeneralRow& general, Row& row) {
  using Kind = RegisterRule::Kind;
  if (!register_and_offset(general.cfa, row.cfa_register, row.cfa_offset)) return false;
  if (!stack_pointer_is_cfa(general.rules[dwarf_register::rsp])) return false;
  if (!saved_at_cfa(general.rules[dwarf_register::rip].operations, row.return_address)) return false;
  for (std::size_t i = 0; i < row.saved.size(); ++i) {
    const RegisterRule& rule = general.rules[dwarf_register::callee_saved[i]];
    if (rule.kind == Kind::same_value)
      row.saved[i] = Row::not_saved;
    else if (rule.kind == Kind::undefined || !saved_at_cfa(rule.operations, row.saved[i]))
      return false;
  }
  for (unsigned number = 0; number < dwarf_register::rip; ++number) {
    if (number == dwarf_register::rsp || is_callee_saved(number)) continue;
    if (general.rules[number].kind == Kind::expression) return false;
  }
  return true;
}

}  // namespace

CallFrameInfo::CallFrameInfo(std::shared_ptr<const Image> image) : image_(std::move(image)) {
  // The register numbers and defaults below are those of x86-64 and of nothing else.
  if (image_->machine() != EM_X86_64 || !image_->is_64bit()) {
    debug_frame_opened_ = true;
    return;
  }
  // go/src/runtime/asm_amd64.s: all of these load SP from a gobuf or a g before they call on.
  constexpr std::array<std::string_view, 4> switching{"runtime.systemstack", "runtime.mcall",
                                                      "runtime.morestack", "runtime.asmcgocall"};
  for (const GoFunction& function : read_go_functions(*image_)) {
    const std::string_view name = function.name.substr(0, function.name.find(".abi0"));
    if (std::find(switching.begin(), switching.end(), name) != switching.end())
      stack_switches_.push_back({function.start, function.end});
  }
  // Finds .eh_frame by PT_GNU_EH_FRAME, else by its section.
  eh_frame_ = dwarf_getcfi_elf(image_->elf());
}

CallFrameInfo::~CallFrameInfo() {
  if (eh_frame_ != nullptr) dwarf_cfi_end(eh_frame_);
}

void CallFrameInfo::open_debug_frame() {
  debug_frame_opened_ = true;
  debug_info_ = DebugInfo::open(image_, DebugInfo::Wanted::debug_frame);
  if (debug_info_) debug_frame_ = dwarf_getcfi(debug_info_->dwarf());
}

Dwarf_Frame* CallFrameInfo::find_frame(std::uint64_t address) {
  Dwarf_Frame* frame = nullptr;
  if (eh_frame_ != nullptr && dwarf_cfi_addrframe(eh_frame_, address, &frame) == 0) return frame;
  if (!debug_frame_opened_) open_debug_frame();
  if (debug_frame_ != nullptr && dwarf_cfi_addrframe(debug_frame_, address, &frame) == 0) return frame;
  return nullptr;
}

bool CallFrameInfo::switches_stacks(std::uint64_t address) const {
  return std::any_of(stack_switches_.begin(), stack_switches_.end(),
                     [&](const AddressRange& range) { return range.contains(address); });
}

Row CallFrameInfo::row_at(std::uint64_t address) {
  Row row;
  const std::unique_ptr<Dwarf_Frame, FreeFrame> frame(find_frame(address));
  if (!frame) return row;

  row.kind = Row::Kind::unusable;
  const int return_column = dwarf_frame_info(frame.get(), nullptr, nullptr, &row.signal);
  if (return_column != static_cast<int>(dwarf_register::rip)) return row;
  GeneralRow general;
  if (!read_rule(frame.get(), dwarf_register::rip, general.rules[dwarf_register::rip])) return row;
  if (general.rules[dwarf_register::rip].kind == RegisterRule::Kind::undefined) {
    row.kind = Row::Kind::outermost;
    return row;
  }
  if (!read_general(frame.get(), general)) return row;
  if (make_simple(general, row)) {
    row.kind = Row::Kind::simple;
    return row;
  }
  row.kind = Row::Kind::general;
  row.general = static_cast<std::uint32_t>(general_rows_.size());
  general_rows_.push_back(std::move(general));
  return row;
}

}  // namespace whomap
