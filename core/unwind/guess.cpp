// SPDX-License-Identifier: Apache-2.0
#include "core/unwind/guess.h"

#include <algorithm>

#include "core/unwind/code_bytes.h"

namespace whomap {
namespace {

using namespace dwarf_register;

/// The caller's registers when only its return address and where that was stored are known.
RegisterFile returned_to(std::uint64_t return_address, std::uint64_t stored_at) {
  RegisterFile caller;
  caller.set(rip, return_address);
  caller.set(rsp, stored_at + 8);
  return caller;
}

}  // namespace

bool CallerGuess::in_other_code(std::uint64_t address) const {
  return std::any_of(other_code_.begin(), other_code_.end(),
                     [&](const AddressRange& range) { return range.contains(address); });
}

const SymbolTable& CallerGuess::symbols(int module) {
  const auto index = static_cast<std::size_t>(module);
  if (symbols_.size() <= index) symbols_.resize(index + 1);
  if (!symbols_[index]) symbols_[index] = std::make_unique<SymbolTable>(*modules_.module(module).image);
  return *symbols_[index];
}

CallerGuess::Function CallerGuess::function_of(PcKind kind, std::uint64_t pc) {
  const std::uint64_t address = kind == PcKind::interrupted ? pc : pc - 1;
  Function function{modules_.find(address), nullptr};
  if (function.module >= 0)
    function.symbol = symbols(function.module).find(address - modules_.module(function.module).bias);
  return function;
}

bool CallerGuess::is_return_address(std::uint64_t address) {
  const int index = modules_.find(address - 1);
  if (index < 0) return false;
  const Module& module = modules_.module(index);
  const std::uint64_t offset = address - module.bias;
  const auto [known, added] = return_addresses_.try_emplace({index, offset});
  if (added)
    known->second = follows_call(*module.image, offset) || is_signal_return_code(*module.image, offset);
  return known->second;
}

bool CallerGuess::has_frame_pointer(const Function& function) {
  const auto [known, added] = frame_pointers_.try_emplace(function.symbol);
  if (added)
    known->second = sets_frame_pointer(*modules_.module(function.module).image, function.symbol->start,
                                       function.symbol->size);
  return known->second;
}

/// Proof, short of a stale return address: a direct call that goes to the function, or to a jump to it.
bool CallerGuess::calls(const Function& function, std::uint64_t return_address) {
  if (function.symbol == nullptr || modules_.find(return_address - 1) != function.module) return false;
  const Module& module = modules_.module(function.module);
  const auto target = direct_call_target(*module.image, return_address - module.bias);
  if (!target) return false;
  return *target == function.symbol->start ||
         direct_jump_target(*module.image, *target) == function.symbol->start;
}

bool CallerGuess::by_stack_pointer(const Function& function, const StackReader& stack,
                                   RegisterFile& registers) {
  std::uint64_t return_address = 0;
  if (!stack.read(registers[rsp], return_address) || !is_return_address(return_address)) return false;
  const int caller_module = modules_.find(return_address - 1);
  const Module& module = modules_.module(caller_module);
  // A direct call to some other function disproves it: the word is a leftover. Calls between modules go
  // through a stub, which has no symbol.
  if (const auto target = direct_call_target(*module.image, return_address - module.bias)) {
    const bool to_a_stub = symbols(caller_module).find(*target) == nullptr;
    if (!calls(function, return_address) && !to_a_stub && function.symbol != nullptr) return false;
  }
  RegisterFile caller = registers;
  caller.keep_callee_saved();
  caller.set(rsp, registers[rsp] + 8);
  caller.set(rip, return_address);
  registers = caller;
  return true;
}

bool CallerGuess::by_frame_pointer(const StackReader& stack, RegisterFile& registers) {
  if (!registers.known(rbp)) return false;
  const std::uint64_t frame = registers[rbp];
  std::uint64_t saved = 0, return_address = 0;
  if (frame < registers[rsp] || frame % 8 != 0) return false;
  if (!stack.read(frame, saved) || !stack.read(frame + 8, return_address)) return false;
  if (!is_return_address(return_address) && !in_other_code(return_address - 1)) return false;
  registers = returned_to(return_address, frame + 8);
  registers.set(rbp, saved);
  return true;
}

bool CallerGuess::by_scan(const Function& function, const StackReader& stack, RegisterFile& registers) {
  constexpr std::uint64_t farthest = 1024;  // bytes: leaves that make system calls have small frames
  for (std::uint64_t at = registers[rsp]; at < registers[rsp] + farthest; at += 8) {
    std::uint64_t word = 0;
    if (!stack.read(at, word)) return false;
    if (!calls(function, word)) continue;
    // Small leaves seldom use the frame pointer. Should this one have, what is computed from it is
    // checked like everything that stands on a guess.
    const bool frame_pointer_known = registers.known(rbp);
    const std::uint64_t frame_pointer = registers[rbp];
    registers = returned_to(word, at);
    if (frame_pointer_known) registers.set(rbp, frame_pointer);
    return true;
  }
  return false;
}

bool CallerGuess::operator()(PcKind kind, const StackReader& stack, RegisterFile& registers) {
  if (!registers.known(rsp) || registers[rsp] % 8 != 0) return false;
  const Function function = function_of(kind, registers[rip]);
  if (kind != PcKind::return_address && by_stack_pointer(function, stack, registers)) return true;
  const bool known = function.symbol != nullptr;
  if (known && has_frame_pointer(function)) return by_frame_pointer(stack, registers);
  return (known && by_scan(function, stack, registers)) || (!known && by_frame_pointer(stack, registers));
}

}  // namespace whomap
