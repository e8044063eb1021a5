// SPDX-License-Identifier: Apache-2.0
#include "core/unwind/guess.h"

#include <algorithm>

#include "core/unwind/code_bytes.h"

namespace whomap {
namespace {

using namespace dwarf_register;

bool follows_module_call(const ModuleMap& modules, std::uint64_t address) {
  const int index = modules.find(address - 1);
  if (index < 0) return false;
  const Module& module = modules.module(index);
  return follows_call(*module.image, address - module.bias);
}

bool in_other_code(const GuessInput& input, std::uint64_t address) {
  return std::any_of(input.other_code.begin(), input.other_code.end(),
                     [&](const AddressRange& range) { return range.contains(address - 1); });
}

bool by_stack_pointer(const GuessInput& input, RegisterFile& registers) {
  std::uint64_t return_address = 0;
  if (input.pc == PcKind::return_address || !input.stack.read(registers[rsp], return_address)) return false;
  if (!follows_module_call(input.modules, return_address)) return false;
  RegisterFile caller = registers;
  caller.keep_callee_saved();
  caller.set(rsp, registers[rsp] + 8);
  caller.set(rip, return_address);
  registers = caller;
  return true;
}

bool by_frame_pointer(const GuessInput& input, RegisterFile& registers) {
  if (!registers.known(rbp)) return false;
  const std::uint64_t frame = registers[rbp];
  std::uint64_t saved = 0, return_address = 0;
  if (frame < registers[rsp] || frame % 8 != 0) return false;
  if (!input.stack.read(frame, saved) || !input.stack.read(frame + 8, return_address)) return false;
  if (!follows_module_call(input.modules, return_address) && !in_other_code(input, return_address))
    return false;
  RegisterFile caller;
  caller.set(rbp, saved);
  caller.set(rsp, frame + 16);
  caller.set(rip, return_address);
  registers = caller;
  return true;
}

}  // namespace

bool guess_caller(const GuessInput& input, RegisterFile& registers) {
  if (!registers.known(rsp)) return false;
  return by_stack_pointer(input, registers) || by_frame_pointer(input, registers);
}

}  // namespace whomap
