// SPDX-License-Identifier: Apache-2.0
#include "core/plan/number_flow.h"

#include <algorithm>

namespace whomap {
namespace {

using Kind = Value::Kind;

bool ends_block(Flow flow) {
  return flow == Flow::jump || flow == Flow::indirect_jump || flow == Flow::end;
}

}  // namespace

NumberFlow::NumberFlow(const FunctionCode& code, const InstructionSet& set,
                       std::span<const std::uint64_t> entered_from_outside)
    : code_(code), set_(set) {
  const auto& all = code.instructions;
  if (all.empty()) return;
  // An address on the stack that is computed into any register but the frame pointer may be handed out, and
  // then any call or store can change the word there.
  stack_escapes_ = std::any_of(all.begin(), all.end(), [&](const Instruction& each) {
    const bool from_stack = each.source == set.stack_pointer || each.source == set.frame_pointer;
    const bool into_pointer = each.destination == set.stack_pointer || each.destination == set.frame_pointer;
    return (each.effect == Effect::add || each.effect == Effect::copy) && from_stack && !into_pointer;
  });
  find_leaders(entered_from_outside);
  settle({0});
  for (const auto& [index, state] : leaders_)
    if (state.reached) from_entry_.insert(index);
  for (const std::uint64_t target : entered_from_outside)
    if (const std::ptrdiff_t index = code.index_of(target); index >= 0)
      enter(static_cast<std::size_t>(index));
  if (code.unresolved_jump) {
    for (const std::size_t index : std::vector(from_entry_.begin(), from_entry_.end()))
      if (index != 0) enter(index);
    // A computed jump can lead anywhere, also right to the system call.
    for (std::size_t i = 1; i < all.size(); ++i)
      if (all[i].flow == Flow::system_call) {
        leaders_[i];
        enter(i);
      }
  }
  // What no path from the entry reaches is entered in a way that is not seen: landing pads, code behind a
  // patched entry. Its registers hold anything.
  for (std::size_t i = 1; i < all.size(); ++i) {
    const bool follows = all[i - 1].next() == all[i].address && !ends_block(all[i - 1].flow);
    if (follows) continue;
    // Padding before a place that is reached otherwise is never run.
    std::size_t behind = i;
    while (behind < all.size() && all[behind].padding) ++behind;
    if (const auto target = leaders_.find(behind);
        behind != i && target != leaders_.end() && target->second.reached)
      continue;
    if (!leaders_[i].reached) enter(i);
  }
}

void NumberFlow::enter(std::size_t leader) {
  if (arrive(leader, unknown_state())) settle({leader});
}

MachineState NumberFlow::entry_state() const {
  if (!code_.entry_known) return unknown_state();
  MachineState state;
  for (unsigned i = 0; i < register_count; ++i)
    state.registers[i] = Value::of_register(static_cast<RegisterNumber>(i));
  state.registers[set_.stack_pointer] = Value::stack_address(0);
  state.reached = true;
  return state;
}

MachineState NumberFlow::unknown_state() const {
  MachineState state;
  state.registers.fill(Value::unknown(0));
  state.reached = true;
  return state;
}

void NumberFlow::find_leaders(std::span<const std::uint64_t> entered_from_outside) {
  leaders_[0] = entry_state();
  const auto add = [&](std::uint64_t address) {
    if (const std::ptrdiff_t index = code_.index_of(address); index >= 0)
      leaders_.try_emplace(static_cast<std::size_t>(index));
  };
  for (const Instruction& each : code_.instructions)
    if (each.flow == Flow::jump || each.flow == Flow::branch) add(each.target);
  for (const std::uint64_t target : code_.jump_table_targets) add(target);
  for (const std::uint64_t target : entered_from_outside) add(target);
}

template <class Visit>
void NumberFlow::successors(std::size_t index, Visit visit) const {
  const Instruction& each = code_.instructions[index];
  const auto visit_address = [&](std::uint64_t address) {
    const std::ptrdiff_t found = code_.index_of(address);
    if (found >= 0) visit(static_cast<std::size_t>(found));
  };
  if (each.flow == Flow::jump || each.flow == Flow::branch) visit_address(each.target);
  if (each.flow == Flow::indirect_jump && each.slot == 0)
    for (const std::uint64_t target : code_.jump_table_targets) visit_address(target);
  if (!ends_block(each.flow)) visit_address(each.next());
}

void NumberFlow::settle(std::vector<std::size_t> pending) {
  while (!pending.empty()) {
    std::size_t index = pending.back();
    pending.pop_back();
    MachineState state = leaders_.at(index);
    for (bool block_continues = true; block_continues;) {
      apply(code_.instructions[index], state);
      block_continues = false;
      std::size_t following = index;
      successors(index, [&](std::size_t next) {
        if (leaders_.contains(next)) {
          if (arrive(next, state)) pending.push_back(next);
        } else {
          block_continues = true;
          following = next;
        }
      });
      index = following;
    }
  }
}

bool NumberFlow::arrive(std::size_t leader, const MachineState& state) {
  MachineState& known = leaders_.at(leader);
  if (!known.reached) {
    known = state;
    return true;
  }
  bool changed = false;
  for (unsigned i = 0; i < register_count; ++i) {
    const Value merged = known.registers[i].merged(state.registers[i]);
    changed |= merged != known.registers[i];
    known.registers[i] = merged;
  }
  for (auto& [at, word] : known.stack) {
    const auto other = state.stack.find(at);
    const Value merged = other == state.stack.end() ? Value::unknown(0) : word.merged(other->second);
    changed |= merged != word;
    word = merged;
  }
  for (const auto& [at, word] : state.stack) changed |= known.stack.try_emplace(at, Value::unknown(0)).second;
  if (known.arguments_intact && !state.arguments_intact) {
    known.arguments_intact = false;
    changed = true;
  }
  return changed;
}

void NumberFlow::lose_stack(MachineState& state) {
  for (auto& [at, word] : state.stack) word = Value::unknown(0);
  state.arguments_intact = false;
}

void NumberFlow::store(MachineState& state, RegisterNumber base, std::int64_t offset, const Value& value,
                       std::uint8_t width) const {
  const Value address = base == no_register ? Value::unknown(0) : state.registers[base];
  if (address.kind() != Kind::stack_address) {
    const bool may_be_stack = stack_escapes_ || base == set_.stack_pointer || base == set_.frame_pointer;
    if (may_be_stack) lose_stack(state);
    return;
  }
  const std::int64_t at = address.offset() + offset;
  // A store to one word spoils words that overlap it.
  for (auto it = state.stack.lower_bound(at - 7);
       it != state.stack.end() && it->first < at + std::max<int>(width, 1); ++it)
    it->second = Value::unknown(0);
  for (std::int64_t word = at; word < at + std::max<int>(width, 1); word += 8)
    state.stack[word] = width == 8 || width == 4 ? value : Value::unknown(0);
}

Value NumberFlow::load(const MachineState& state, const Value& address, const Instruction& by) const {
  if (address.kind() != Kind::stack_address) return Value::unknown(by.address);
  const std::int64_t at = address.offset() + by.immediate;
  if (const auto word = state.stack.find(at); word != state.stack.end())
    return word->second.moved(by.address, by.width, by.sign_extended);
  // Words above the return address were there when the function was entered: arguments on the stack.
  if (at >= set_.return_address_bytes && code_.entry_known && state.arguments_intact)
    return Value::of_stack(at).moved(by.address, by.width, false);
  return Value::unknown(by.address);
}

void NumberFlow::apply(const Instruction& by, MachineState& state) const {
  auto& registers = state.registers;
  const Value moved_source = by.source == no_register ? Value::unknown(by.address) : registers[by.source];
  const auto push = [&](const Value& value) {
    Value& top = registers[set_.stack_pointer];
    top = top.changed(Effect::add, -8, by.address, 8);
    store(state, set_.stack_pointer, 0, value, 8);
  };
  const auto pop = [&](RegisterNumber into) {
    Instruction word = by;
    word.immediate = 0;
    word.width = 8;
    const Value value = load(state, registers[set_.stack_pointer], word);
    registers[set_.stack_pointer] = registers[set_.stack_pointer].changed(Effect::add, 8, by.address, 8);
    registers[into] = value;
  };
  for (unsigned i = 0; i < register_count; ++i)
    if ((by.clobbered >> i & 1U) != 0) registers[i] = Value::unknown(by.address);
  switch (by.effect) {
    case Effect::other: break;
    case Effect::constant: registers[by.destination] = Value::constant(by.immediate, by.address); break;
    case Effect::insert:
      registers[by.destination] =
          registers[by.destination].inserted(by.immediate, by.shift, by.address, by.width);
      break;
    case Effect::copy:
      registers[by.destination] = moved_source.moved(by.address, by.width, by.sign_extended);
      break;
    case Effect::conditional_copy:
      registers[by.destination] = registers[by.destination]
                                      .moved(by.address, by.width, false)
                                      .merged(moved_source.moved(by.address, by.width, false));
      break;
    case Effect::exchange: std::swap(registers[by.destination], registers[by.source]); break;
    case Effect::add:
    case Effect::bit_or:
    case Effect::bit_and:
      registers[by.destination] = moved_source.changed(by.effect, by.immediate, by.address, by.width);
      break;
    case Effect::load: registers[by.destination] = load(state, moved_source, by); break;
    case Effect::store: store(state, by.destination, by.immediate, moved_source, by.width); break;
    case Effect::store_constant:
      store(state, by.destination, by.immediate, Value::constant(by.stored, by.address), by.width);
      break;
    case Effect::store_anywhere:
      if (stack_escapes_ || by.destination == set_.stack_pointer || by.destination == set_.frame_pointer)
        lose_stack(state);
      break;
    case Effect::push: push(moved_source); break;
    case Effect::push_constant: push(Value::constant(by.immediate, by.address)); break;
    case Effect::pop: pop(by.destination); break;
    case Effect::leave:
      registers[set_.stack_pointer] = registers[set_.frame_pointer];
      pop(set_.frame_pointer);
      break;
  }
  if (by.flow == Flow::call || by.flow == Flow::indirect_call) {
    for (unsigned i = 0; i < register_count; ++i)
      if ((set_.call_clobbers >> i & 1U) != 0) registers[i] = Value::unknown(by.address);
    if (stack_escapes_) lose_stack(state);
  }
}

MachineState NumberFlow::before(std::uint64_t address) const {
  const std::ptrdiff_t wanted = code_.index_of(address);
  if (wanted < 0) return unknown_state();
  const std::size_t leader = leader_of(static_cast<std::size_t>(wanted));
  MachineState state = leaders_.at(leader);
  if (!state.reached) return unknown_state();
  for (std::size_t i = leader; i < static_cast<std::size_t>(wanted); ++i) apply(code_.instructions[i], state);
  return state;
}

std::size_t NumberFlow::leader_of(std::size_t index) const {
  return std::prev(leaders_.upper_bound(index))->first;  // index 0 always is a leader
}

bool NumberFlow::reached_from_entry(std::uint64_t address) const {
  const std::ptrdiff_t index = code_.index_of(address);
  return index >= 0 && from_entry_.contains(leader_of(static_cast<std::size_t>(index)));
}

}  // namespace whomap
