// SPDX-License-Identifier: Apache-2.0
#include "core/plan/callers.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/elf/relocations.h"
#include "core/plan/number_flow.h"
#include "core/plan/references.h"

namespace whomap {
namespace {

/// GOT slots of the module that lead to the dispatcher: by what they hold where they are bound, by the symbol
/// they are for where they are not (lazy binding leaves the address of the PLT's own next instruction).
std::vector<std::uint64_t> slots_for(const ModuleCode& module, const Image& image,
                                     const Dispatcher& dispatcher) {
  std::vector<std::uint64_t> slots;
  for (const ImportSlot& slot : read_import_slots(image)) {
    const std::uint64_t address = slot.vaddr + module.bias();
    std::array<std::uint8_t, 8> bytes{};
    std::uint64_t content = 0;
    if (module.view().read_data(address, bytes) == bytes.size())
      std::memcpy(&content, bytes.data(), sizeof content);
    const bool bound = content != 0 && !module.view().area(content).has_value();
    const bool named = std::find(dispatcher.aliases.begin(), dispatcher.aliases.end(), slot.symbol) !=
                       dispatcher.aliases.end();
    const bool unbound_import = !bound && named && !slot.defined_here;
    if (content == dispatcher.entry || unbound_import) slots.push_back(address);
  }
  std::sort(slots.begin(), slots.end());
  return slots;
}

/// Where a call to the stub that ends in the jump at `jump` would go to: the jump itself, or the endbr64 (and
/// bnd prefix) before it that .plt.sec and -z ibtplt put there.
std::vector<std::uint64_t> stub_entries(const ModuleCode& module, std::uint64_t jump) {
  constexpr std::array<std::uint8_t, 4> endbr64{0xF3, 0x0F, 0x1E, 0xFA};
  std::vector<std::uint64_t> entries{jump};
  std::array<std::uint8_t, 5> before{};
  if (module.view().read(jump - before.size(), before) != before.size()) return entries;
  const bool bnd = before[4] == 0xF2;
  if (bnd) entries.push_back(jump - 1);
  const std::size_t marker = bnd ? 0 : 1;
  if (std::equal(endbr64.begin(), endbr64.end(), before.begin() + static_cast<std::ptrdiff_t>(marker)))
    entries.push_back(jump - (bnd ? 5 : 4));
  return entries;
}

Value parameter_at(const Dispatcher& dispatcher, const ModuleCode& module, const MachineState& state,
                   bool tail_jump) {
  if (dispatcher.parameter.kind() == Value::Kind::entry_register)
    return state.registers[dispatcher.parameter.entry_register()];
  const Value& top = state.registers[module.set().stack_pointer];
  if (top.kind() != Value::Kind::stack_address) return Value::unknown(0);
  // A call pushes the return address; with a tail jump it is there already.
  const std::int64_t pushed = tail_jump ? 0 : module.set().return_address_bytes;
  const auto word = state.stack.find(top.offset() + dispatcher.parameter.offset() - pushed);
  return word == state.stack.end() ? Value::unknown(0) : word->second;
}

}  // namespace

std::vector<DispatcherCall> find_dispatcher_calls(const ModuleCode& module, const Image* image,
                                                  const Dispatcher& dispatcher) {
  using Kind = Reference::Kind;
  std::vector<DispatcherCall> calls;
  const bool own = module.view().area(dispatcher.entry).has_value();
  const std::vector<std::uint64_t> slots =
      image == nullptr ? std::vector<std::uint64_t>{} : slots_for(module, *image, dispatcher);
  if (!own && slots.empty()) return calls;

  std::vector<Reference> references = find_references(module, {.slots = slots});
  std::vector<AddressRange> entries;
  const auto add_entry = [&](std::uint64_t address) { entries.push_back({address, address + 1}); };
  if (own) add_entry(dispatcher.entry);
  for (const Reference& each : references) {
    if (each.kind != Kind::jump_through) continue;
    for (const std::uint64_t entry : stub_entries(module, each.address)) add_entry(entry);
  }
  std::sort(entries.begin(), entries.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.start < b.start; });
  for (const Reference& each : find_references(module, {.targets = entries})) references.push_back(each);

  for (const Reference& each : references) {
    const auto bounds = module.bounds(each.address);
    if (!bounds) continue;
    const FunctionCode& code = module.code(*bounds);
    const std::ptrdiff_t index = code.index_of(each.address);
    if (index < 0) continue;
    const bool is_call = each.kind == Kind::call || each.kind == Kind::call_through;
    // Jumps in code without an entry of its own are the PLT's.
    if (!is_call && !bounds->entry_known) continue;
    DispatcherCall call;
    call.address = each.address;
    call.next = is_call ? code.instructions[static_cast<std::size_t>(index)].next() : 0;
    call.tail_jump = !is_call;
    call.bounds = *bounds;
    call.number =
        parameter_at(dispatcher, module, NumberFlow(code, module.set()).before(each.address), !is_call);
    call.dispatcher = dispatcher.name;
    calls.push_back(std::move(call));
  }
  std::sort(calls.begin(), calls.end(),
            [](const DispatcherCall& a, const DispatcherCall& b) { return a.address < b.address; });
  return calls;
}

}  // namespace whomap
