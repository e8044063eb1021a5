// SPDX-License-Identifier: Apache-2.0
// Follows values through one function: which numbers can be in a register when an instruction runs?
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "core/plan/function_code.h"
#include "core/plan/instruction.h"
#include "core/plan/value.h"

namespace whomap {

/// Registers and known stack words at one place.
struct MachineState {
  std::array<Value, register_count> registers;
  std::map<std::int64_t, Value> stack;  ///< by offset from the stack pointer at the function's entry
  bool arguments_intact = true;         ///< stack words that are not in `stack` are as they were at the entry
  bool reached = false;
};

/// A forward data flow over the function's instructions. Sound, not complete: where control may come from a
/// place that is not seen (an exception's landing pad, a jump from another function, an indirect jump that
/// could not be resolved) everything is unknown there.
class NumberFlow {
 public:
  /// `entered_from_outside`: addresses in the function that other code is known to jump to.
  NumberFlow(const FunctionCode& code, const InstructionSet& set,
             std::span<const std::uint64_t> entered_from_outside = {});

  /// The state before the instruction at `address`; all unknown when there is no instruction.
  [[nodiscard]] MachineState before(std::uint64_t address) const;

  /// Is there a path from the function's first instruction to the one at `address`?
  [[nodiscard]] bool reached_from_entry(std::uint64_t address) const;

 private:
  [[nodiscard]] MachineState entry_state() const;
  [[nodiscard]] MachineState unknown_state() const;
  void find_leaders(std::span<const std::uint64_t> entered_from_outside);
  /// Other code comes to this leader, with anything in its registers.
  void enter(std::size_t leader);
  [[nodiscard]] std::size_t leader_of(std::size_t index) const;
  void settle(std::vector<std::size_t> pending);
  /// Merges into a leader's state; true when that changed it.
  bool arrive(std::size_t leader, const MachineState& state);
  void apply(const Instruction& instruction, MachineState& state) const;
  void store(MachineState& state, RegisterNumber base, std::int64_t offset, const Value& value,
             std::uint8_t width) const;
  static void lose_stack(MachineState& state);
  [[nodiscard]] Value load(const MachineState& state, const Value& address, const Instruction& by) const;
  template <class Visit>
  void successors(std::size_t index, Visit visit) const;

  const FunctionCode& code_;
  const InstructionSet& set_;
  std::map<std::size_t, MachineState> leaders_;  ///< by index of the instruction that control can come to
  std::set<std::size_t> from_entry_;             ///< leaders with a path from the entry
  bool stack_escapes_ = false;                   ///< an address on the stack is in use elsewhere
};

}  // namespace whomap
