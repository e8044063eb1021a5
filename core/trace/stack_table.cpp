// SPDX-License-Identifier: Apache-2.0
#include "core/trace/stack_table.h"

#include <algorithm>

#include <fmt/format.h>

namespace whomap {
namespace {

/// Equal chains have equal keys. Why a chain was cut is not part of it: the text may hold addresses that
/// differ from thread to thread.
std::string key_of(const UnwoundStack& stack) {
  std::string key;
  key.reserve(stack.frames.size() * 16 + 1);
  for (const UnwoundFrame& frame : stack.frames) {
    key.append(reinterpret_cast<const char*>(&frame.offset), sizeof frame.offset);
    key.append(reinterpret_cast<const char*>(&frame.module), sizeof frame.module);
    key += static_cast<char>((frame.exact ? 1 : 0) | (frame.guessed ? 2 : 0));
  }
  key += stack.truncated.empty() ? 'w' : 'c';
  return key;
}

bool has_unknown_code(const UnwoundStack& stack) {
  return std::any_of(stack.frames.begin(), stack.frames.end(),
                     [](const UnwoundFrame& frame) { return frame.module < 0; });
}

}  // namespace

StackTable::StackTable(const Target& target) : target_(target), unwinder_(modules_) {
  read_modules();
  modules_at_start_ = modules_.modules().size();
}

void StackTable::read_modules() {
  const auto begin = std::chrono::steady_clock::now();
  if (const auto maps = read_maps(target_.pid())) {
    modules_.update(target_, maps->vmas);
    std::vector<AddressRange> other_code;
    for (const Vma& vma : maps->vmas)
      if (vma.executable && modules_.find(vma.start) < 0) other_code.push_back(vma.range());
    unwinder_.set_other_code(std::move(other_code));
  }
  const auto end = std::chrono::steady_clock::now();
  constexpr int cost_share = 20;  // at most a twentieth of the time goes into this
  next_module_read_ = end + std::max<std::chrono::steady_clock::duration>(std::chrono::milliseconds(100),
                                                                          (end - begin) * cost_share);
}

UnwoundStack StackTable::unwind(const Registers& registers, const StackCopy& copy) {
  UnwoundStack stack = unwinder_.unwind(registers, copy);
  // An address in no module may lie in a library that was loaded after the last look.
  if ((has_unknown_code(stack) || !stack.truncated.empty()) &&
      std::chrono::steady_clock::now() >= next_module_read_) {
    read_modules();
    stack = unwinder_.unwind(registers, copy);
  }
  return stack;
}

StackTable::Found StackTable::find(const Registers& registers, const StackCopy& copy) {
  UnwoundStack stack = unwind(registers, copy);
  const auto [at, is_new] = ids_.try_emplace(key_of(stack), size());
  const Found found{at->second, is_new, stack.stack_bytes, stack.copy_ended};
  if (is_new) stacks_.push_back(std::move(stack));
  return found;
}

Frame StackTable::frame_of(const UnwoundFrame& unwound) const {
  Frame frame;
  frame.offset = unwound.offset;
  frame.guessed = unwound.guessed;
  frame.exact = unwound.exact;
  if (unwound.module >= 0) {
    const Module& module = modules_.module(unwound.module);
    frame.module = module.path;
    frame.build_id = module.image->build_id();
  }
  return frame;
}

Stack StackTable::stack(std::uint32_t id) const {
  const UnwoundStack& unwound = stacks_[id];
  Stack stack{id, {}, {}};
  for (const UnwoundFrame& frame : unwound.frames) stack.frames.push_back(frame_of(frame));
  if (!unwound.truncated.empty()) stack.truncated = unwound.truncated;
  return stack;
}

/// Names from the runtime itself, for code that it has compiled. It may have moved or thrown away what it
/// once named, so they are guesses.
void StackTable::name_compiled_code(Stack& stack) {
  for (Frame& frame : stack.frames) {
    if (!frame.module.empty() || frame.function) continue;
    if (!compiled_) compiled_ = PerfMap::of(target_);
    const std::string_view name = compiled_->find(frame.exact ? frame.offset : frame.offset - 1);
    if (name.empty()) continue;
    frame.function = name;
    frame.guessed = true;
  }
}

Stack StackTable::named(std::uint32_t id) {
  const UnwoundStack& unwound = stacks_[id];
  Stack stack{id, {}, {}};
  if (!unwound.truncated.empty()) stack.truncated = unwound.truncated;
  stack.frames = symboliser_.frames(unwound, modules_);
  name_compiled_code(stack);
  return stack;
}

std::vector<std::string> StackTable::notes() const {
  std::vector<std::string> notes;
  for (const UnreadableModule& module : modules_.unreadable())
    notes.push_back(fmt::format("{} has no names and no unwind rows: {}", module.path, module.reason));
  std::string loaded;
  for (std::size_t i = modules_at_start_; i < modules_.modules().size(); ++i)
    loaded += (loaded.empty() ? "" : ", ") + modules_.modules()[i].path;
  if (!loaded.empty())
    notes.push_back(
        fmt::format("loaded during the trace: {}; calls that their own instructions make were not watched "
                    "(calls through libc were)",
                    loaded));
  return notes;
}

}  // namespace whomap
