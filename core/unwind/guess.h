// SPDX-License-Identifier: Apache-2.0
// The caller of a frame that no call frame information describes: a guess, checked as far as it can be.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/elf/module_map.h"
#include "core/elf/symbol_table.h"
#include "core/process/vma.h"
#include "core/unwind/register_file.h"
#include "core/unwind/row_cache.h"
#include "core/unwind/stack_reader.h"

namespace whomap {

class CallerGuess {
 public:
  explicit CallerGuess(const ModuleMap& modules) : modules_(modules) {}

  /// Executable memory that belongs to no module.
  void set_other_code(std::vector<AddressRange> ranges) { other_code_ = std::move(ranges); }
  [[nodiscard]] bool in_other_code(std::uint64_t address) const;
  /// Does `address` follow a call instruction of a module, or is it where signal handlers return to?
  bool is_return_address(std::uint64_t address);
  /// Does the call before `return_address` go to the function that runs at the return address `pc`?
  bool is_call_of(std::uint64_t pc, std::uint64_t return_address) {
    return calls(function_of(PcKind::return_address, pc), return_address);
  }

  /// Replaces `registers` by the caller's and returns true when there is a plausible one, in this order:
  /// a return address at the stack pointer (only where the frame cannot have called anything yet); the
  /// frame pointer's pair, if the function sets one up; a return address within a kilobyte of stack whose
  /// call goes to this very function; the frame pointer's pair after all, if the function is unknown.
  /// Every return address must follow a call instruction; only by frame pointer it may also lie in other
  /// executable memory. Registers that a frame may have saved in unknown places become unknown.
  bool operator()(PcKind pc, const StackReader& stack, RegisterFile& registers);

 private:
  /// The function that runs at a frame's pc, as far as symbols tell.
  struct Function {
    int module = -1;
    const FunctionSymbol* symbol = nullptr;
  };
  Function function_of(PcKind kind, std::uint64_t pc);
  const SymbolTable& symbols(int module);
  bool has_frame_pointer(const Function& function);
  bool calls(const Function& function, std::uint64_t return_address);
  bool by_stack_pointer(const Function& function, const StackReader& stack, RegisterFile& registers);
  bool by_frame_pointer(const StackReader& stack, RegisterFile& registers);
  bool by_scan(const Function& function, const StackReader& stack, RegisterFile& registers);

  const ModuleMap& modules_;
  std::vector<AddressRange> other_code_;
  std::vector<std::unique_ptr<SymbolTable>> symbols_;  ///< by module index, read when first needed
  std::map<std::pair<int, std::uint64_t>, bool> return_addresses_;  ///< by module and offset
  std::map<const FunctionSymbol*, bool> frame_pointers_;
};

}  // namespace whomap
