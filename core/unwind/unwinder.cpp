// SPDX-License-Identifier: Apache-2.0
#include "core/unwind/unwinder.h"

#include <utility>

#include <fmt/format.h>

#include "core/capture/frame_chain.h"
#include "core/unwind/cfi.h"
#include "core/unwind/code_bytes.h"
#include "core/unwind/guess.h"
#include "core/unwind/register_file.h"
#include "core/unwind/row_cache.h"
#include "core/unwind/stack_reader.h"
#include "core/unwind/step.h"

namespace whomap {
namespace {

std::string place(const ModuleMap& modules, const UnwoundFrame& frame) {
  if (frame.module < 0) return fmt::format("{:#x}", frame.pc);
  const std::string& path = modules.module(frame.module).path;
  return fmt::format("{}+{:#x}", printable(path.substr(path.rfind('/') + 1)), frame.offset);
}

const UnreadableModule* unreadable_at(const ModuleMap& modules, std::uint64_t address) {
  for (const UnreadableModule& module : modules.unreadable())
    for (const AddressRange& range : module.ranges)
      if (range.contains(address)) return &module;
  return nullptr;
}

/// On the stack that was copied, above the copy's end: as far as a stack may be large.
bool is_beyond(std::uint64_t address, const StackReader& stack) {
  return address >= stack.start() && address - stack.end() <= (std::uint64_t{1} << 30);
}

}  // namespace

enum class OtherStack {
  unknown,
  guessed,  ///< the frame pointer's frame; a frame before it may be missing
  found,    ///< the frame that called is proven by its call frame information
};

struct Unwinder::State {
  explicit State(const ModuleMap& map) : modules(map), guess_caller(map) {}

  const Row& row(int module, std::uint64_t offset, PcKind kind);
  Row make_row(CallFrameInfo& cfi, std::uint64_t offset, PcKind kind) const;
  [[nodiscard]] bool may_be_code(std::uint64_t address) const;
  [[nodiscard]] std::string no_unwind_info(const UnwoundFrame& frame, bool unusable) const;
  [[nodiscard]] std::string why_ended(const Step& step, const UnwoundFrame& frame,
                                      const StackReader& stack) const;

  /// By call frame information; where there is none it is unsupported.
  Step step(const Row& row, int module, const StackReader& stack, RegisterFile& registers) const {
    if (row.kind == Row::Kind::simple) return step_simple(row, stack, registers);
    if (row.kind != Row::Kind::general) return {StepOutcome::unsupported, 0};
    return step_general(cfi[static_cast<std::size_t>(module)]->general_row(row.general), stack, registers);
  }
  [[nodiscard]] OtherStack cross(const StackCopy& copy, RegisterFile& registers);

  const ModuleMap& modules;
  std::vector<std::unique_ptr<CallFrameInfo>> cfi;  ///< by module index, opened when first needed
  RowCache rows;
  CallerGuess guess_caller;
  bool other_code_known = false;
};

Row Unwinder::State::make_row(CallFrameInfo& source, std::uint64_t offset, PcKind kind) const {
  if (source.switches_stacks(kind == PcKind::return_address ? offset - 1 : offset)) {
    Row row;
    row.kind = Row::Kind::stack_switch;
    return row;
  }
  if (kind != PcKind::return_address) return source.row_at(offset);
  Row row = source.row_at(offset - 1);
  if (row.signal) return row;
  // A handler "returns" to the first byte of this code. glibc lets its CFI begin one byte early, so that
  // the lookup above finds it; others have none, and what lies before it is somebody else's row.
  if (is_signal_return_code(source.image(), offset)) {
    row = source.row_at(offset);
    if (row.signal) return row;
    row = Row{};
    row.kind = Row::Kind::kernel_signal;
    row.signal = true;
  }
  return row;
}

const Row& Unwinder::State::row(int module, std::uint64_t offset, PcKind kind) {
  const RowCache::Key key{offset, static_cast<std::uint32_t>(module), kind == PcKind::return_address};
  if (const Row* known = rows.find(key)) return *known;
  const auto index = static_cast<std::size_t>(module);
  if (cfi.size() <= index) cfi.resize(index + 1);
  if (!cfi[index]) cfi[index] = std::make_unique<CallFrameInfo>(modules.module(module).image);
  return *rows.insert(key, make_row(*cfi[index], offset, kind));
}

bool Unwinder::State::may_be_code(std::uint64_t address) const {
  if (!other_code_known || unreadable_at(modules, address) != nullptr) return true;
  return guess_caller.in_other_code(address);
}

std::string Unwinder::State::no_unwind_info(const UnwoundFrame& frame, bool unusable) const {
  if (unusable)
    return fmt::format("unwind info at {} is damaged or of an unknown kind", place(modules, frame));
  if (frame.module < 0)
    if (const UnreadableModule* const unreadable = unreadable_at(modules, frame.pc))
      return fmt::format("no unwind info at {:#x}: {}", frame.pc, unreadable->reason);
  return fmt::format("no unwind info at {}", place(modules, frame));
}

std::string Unwinder::State::why_ended(const Step& step, const UnwoundFrame& frame,
                                       const StackReader& stack) const {
  switch (step.outcome) {
    case StepOutcome::unreadable:
      if (!is_beyond(step.address, stack))
        return fmt::format("the stack of {} is at {:#x}, outside the copy", place(modules, frame),
                           step.address);
      return fmt::format("copy ended at {:#x}", stack.end());
    case StepOutcome::unknown_register:
      return fmt::format("unwind info at {} needs a register whose value is not known",
                         place(modules, frame));
    case StepOutcome::unsupported:
      return fmt::format("unwind info at {} has an expression that cannot be evaluated",
                         place(modules, frame));
    case StepOutcome::stepped:
    case StepOutcome::no_return_address: break;
  }
  return {};
}

/// From a function that switched stacks to its caller, on the other stack. The chain of frame pointers leads
/// to the frame that the caller has set up, F: the pair at F is (the caller's caller's frame pointer, the
/// return address into the caller's caller), and the CFA of the caller is F + 16. The return address into the
/// caller itself lies somewhere below F: a word that follows a call of the switching function, and from which
/// the call frame information says that the CFA is F + 16.
OtherStack Unwinder::State::cross(const StackCopy& copy, RegisterFile& registers) {
  if (copy.other_frame == 0) return OtherStack::unknown;
  const std::uint64_t frame = copy.other_frame;
  const StackReader stack(frame - other_stack_below, copy.other_bytes);
  constexpr std::uint64_t word = sizeof(std::uint64_t);
  const std::uint64_t cfa = frame + 2 * word;
  const std::uint64_t switched_at = registers[dwarf_register::rip];
  const auto go_on_at = [&](std::uint64_t pc, std::uint64_t stack_pointer, std::uint64_t frame_pointer) {
    registers = RegisterFile();
    registers.set(dwarf_register::rip, pc);
    registers.set(dwarf_register::rsp, stack_pointer);
    registers.set(dwarf_register::rbp, frame_pointer);
  };
  std::uint64_t value = 0;
  int callers = 0;  // what earlier calls have left below looks the same, but rarely goes to the same function
  RegisterFile found;
  for (std::uint64_t at = stack.start(); at < frame; at += word) {
    if (!stack.read(at, value)) break;
    const int module = modules.find(value - 1);
    if (module < 0 || !guess_caller.is_call_of(switched_at, value)) continue;
    const Row& caller = row(module, value - modules.module(module).bias, PcKind::return_address);
    go_on_at(value, at + word, frame);
    RegisterFile beyond = registers;
    if (step(caller, module, stack, beyond).outcome != StepOutcome::stepped ||
        beyond[dwarf_register::rsp] != cfa)
      continue;
    ++callers;
    found = registers;
  }
  if (callers == 1) {
    registers = found;
    return OtherStack::found;
  }
  std::uint64_t return_address = 0;
  std::uint64_t outer = 0;
  if (!stack.read(frame, outer) || !stack.read(frame + word, return_address) ||
      !guess_caller.is_return_address(return_address))
    return OtherStack::unknown;
  go_on_at(return_address, cfa, outer);
  return OtherStack::guessed;
}

Unwinder::Unwinder(const ModuleMap& modules) : state_(std::make_unique<State>(modules)) {}
Unwinder::~Unwinder() = default;

void Unwinder::set_other_code(std::vector<AddressRange> ranges) {
  state_->guess_caller.set_other_code(std::move(ranges));
  state_->other_code_known = true;
}

UnwoundStack Unwinder::unwind(const Registers& from, const StackCopy& copy) {
  UnwoundStack result;
  result.frames.reserve(64);
  StackReader stack(copy);
  RegisterFile registers(from);
  PcKind kind = PcKind::innermost;
  bool guessed = false;
  bool on_other_stack = false;  ///< whose copy has one size

  for (;;) {
    const std::uint64_t pc = registers[dwarf_register::rip];
    const std::uint64_t lookup = kind == PcKind::return_address ? pc - 1 : pc;
    const int module = state_->modules.find(lookup);
    if (kind == PcKind::return_address) {
      const bool not_code = module < 0 && !state_->may_be_code(lookup);
      if (not_code || (guessed && module >= 0 && !state_->guess_caller.is_return_address(pc))) {
        result.truncated = fmt::format("the return address of {} would be {:#x}, which {}",
                                       place(state_->modules, result.frames.back()), pc,
                                       not_code ? "is not executable memory" : "follows no call");
        return result;
      }
    }
    if (result.frames.size() == frame_limit) {
      result.truncated = fmt::format("more than {} frames", frame_limit);
      return result;
    }
    const std::uint64_t offset = module < 0 ? pc : pc - state_->modules.module(module).bias;
    result.frames.push_back({pc, module, offset, kind == PcKind::interrupted, guessed});
    UnwoundFrame& frame = result.frames.back();

    const Row missing;
    const Row& row = module < 0 ? missing : state_->row(module, offset, kind);
    if (row.signal) frame.exact = true;
    const std::uint64_t stack_pointer = registers[dwarf_register::rsp];
    Step step;
    switch (row.kind) {
      case Row::Kind::simple:
      case Row::Kind::general: step = state_->step(row, module, stack, registers); break;
      case Row::Kind::kernel_signal: step = step_kernel_signal(stack, registers); break;
      case Row::Kind::outermost: return result;
      case Row::Kind::stack_switch: {
        const OtherStack other = on_other_stack ? OtherStack::unknown : state_->cross(copy, registers);
        if (other == OtherStack::unknown) {
          result.truncated = fmt::format(
              "Go's runtime switched stacks at {}: the caller's stack was not copied (--engine gdb "
              "can do that)",
              place(state_->modules, frame));
          return result;
        }
        stack = StackReader(copy.other_frame - other_stack_below, copy.other_bytes);
        on_other_stack = true;
        guessed = guessed || other == OtherStack::guessed;
        kind = PcKind::return_address;
        continue;
      }
      case Row::Kind::missing:
      case Row::Kind::unusable:
        if (!state_->guess_caller(kind, stack, registers)) {
          result.truncated = state_->no_unwind_info(frame, row.kind == Row::Kind::unusable);
          return result;
        }
        guessed = true;
        break;
    }
    if (step.outcome != StepOutcome::stepped) {
      result.truncated = state_->why_ended(step, frame, stack);
      result.copy_ended =
          !on_other_stack && step.outcome == StepOutcome::unreadable && is_beyond(step.address, stack);
      return result;
    }
    if (const std::uint64_t used = registers[dwarf_register::rsp] - stack.start();
        !on_other_stack && used <= copy.bytes.size())
      result.stack_bytes = used;
    // A caller's frame lies above its callee's. Only a signal handler may run on another stack.
    if (!row.signal && registers[dwarf_register::rsp] <= stack_pointer) {
      result.truncated = fmt::format("no progress at {}: its caller's frame is not above its own",
                                     place(state_->modules, frame));
      return result;
    }
    kind = row.signal ? PcKind::interrupted : PcKind::return_address;
  }
}

}  // namespace whomap
