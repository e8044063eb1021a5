// SPDX-License-Identifier: Apache-2.0
#include "core/match/culprit.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace whomap {
namespace {

using Names = std::initializer_list<std::string_view>;

bool starts_with_any(std::string_view text, Names starts) {
  return std::any_of(starts.begin(), starts.end(),
                     [&](std::string_view start) { return text.starts_with(start); });
}

bool is_any(std::string_view text, Names names) {
  return std::find(names.begin(), names.end(), text) != names.end();
}

bool is_libc(std::string_view module) {
  return starts_with_any(module,
                         {"libc.so", "libc-2.", "libpthread.so", "libpthread-2.", "libc.musl-", "[vdso]"});
}

bool is_loader(std::string_view module) {
  return starts_with_any(module, {"ld-linux", "ld-musl", "ld-2.", "ld.so", "ld64.so"});
}

/// munmap, __munmap, ucm_munmap, ucm_override_munmap, my_hooked_munmap: the name ends in munmap as a word.
bool is_unmap_function(std::string_view name) {
  if (!name.ends_with("munmap")) return false;
  name.remove_suffix(6);
  return name.empty() || name.back() == '_' || name.back() == ':';
}

/// A function whose whole work is to enter the kernel, as hook libraries have them beside their own code.
bool is_call_wrapper(std::string_view name) {
  return name == "syscall" || name.ends_with("_syscall") || name.find("orig_") != std::string_view::npos ||
         name.ends_with("mmap") || name.ends_with("mmap64") || name.ends_with("mremap") ||
         name.ends_with("brk");
}

/// Within a hook's unmapping function, inner to it: the code that maps. The innermost frame with a name that
/// is more than a wrapper; its library's, where the innermost frames have no names.
std::optional<std::size_t> culprit_below_unmap(const Stack& stack, std::size_t unmap,
                                               const FrameRoles& roles) {
  std::optional<std::size_t> nameless;
  for (std::size_t i = 0; i < unmap; ++i) {
    const Frame& frame = stack.frames[i];
    const FrameRole role = role_of(frame, roles);
    if (role != FrameRole::program && role != FrameRole::hook) continue;
    if (frame.function && is_call_wrapper(plain_name(frame))) continue;
    if (!frame.function) {
      if (!nameless) nameless = i;
      continue;
    }
    // The named caller of a nameless static says more, if both are one library's.
    if (nameless && stack.frames[*nameless].module != frame.module) return nameless;
    return i;
  }
  return nameless;
}

/// A nameless frame whose caller, not far out in the same file, is an allocator's: a static function of it.
bool is_inside_allocator(const Stack& stack, std::size_t index, const FrameRoles& roles) {
  constexpr std::size_t near = 3;
  const std::string& module = stack.frames[index].module;
  if (stack.frames[index].function || module.empty()) return false;
  for (std::size_t i = index + 1; i < stack.frames.size() && i <= index + near; ++i) {
    if (stack.frames[i].module != module) return false;
    if (stack.frames[i].function) return role_of(stack.frames[i], roles) == FrameRole::allocator;
  }
  return false;
}

/// Names of an interpreter's own loop say nothing of the code that it runs.
bool is_interpreter_loop(const Frame& frame) {
  return starts_with_any(plain_name(frame), {"_Py", "Py", "cfunction_", "method_vectorcall"});
}

std::optional<std::size_t> caller_with_name(const Stack& stack, std::size_t culprit,
                                            const FrameRoles& roles) {
  constexpr std::size_t near = 8;
  const Frame& frame = stack.frames[culprit];
  if (frame.function && !is_java_interpreter(frame)) return std::nullopt;
  for (std::size_t i = culprit + 1; i < stack.frames.size() && i <= culprit + near; ++i) {
    const Frame& caller = stack.frames[i];
    if (!caller.function || is_java_interpreter(caller)) continue;
    if (is_interpreter_loop(caller)) return std::nullopt;
    if (role_of(caller, roles) == FrameRole::program) return i;
  }
  return std::nullopt;
}

}  // namespace

bool is_java_interpreter(const Frame& frame) {
  return frame.function == "Interpreter" && (frame.module.empty() || frame.run_time);
}

std::string module_name(const Frame& frame) {
  std::string_view path = frame.module;
  if (path.ends_with(" (deleted)")) path.remove_suffix(10);
  return std::string(path.substr(path.rfind('/') + 1));
}

std::string frame_name(const Frame& frame) {
  if (frame.function && !frame.function->empty()) return *frame.function;
  if (frame.module.empty()) return fmt::format("{:#x}", frame.offset);
  if (frame.run_time) return fmt::format("{:#x} in {}", frame.offset, module_name(frame));
  return fmt::format("{}+{:#x}", module_name(frame), frame.offset);
}

std::string frame_place(const Frame& frame) {
  const std::string name = frame_name(frame);
  if (frame.file && frame.line)
    return fmt::format("{} ({}:{})", name, std::string_view(*frame.file).substr(frame.file->rfind('/') + 1),
                       *frame.line);
  if (frame.function && !frame.module.empty()) return fmt::format("{} ({})", name, module_name(frame));
  return name;
}

FrameRole role_of(const Frame& frame, const FrameRoles& roles) {
  const std::string module = module_name(frame);
  if (is_loader(module)) return FrameRole::loader;  // its malloc is its own affair
  if (const FrameRule* const rule = roles.rule_of(frame, module)) return rule->role;
  if (is_libc(module)) return FrameRole::libc;
  // A static executable holds libc's functions itself.
  const std::string_view name = plain_name(frame);
  if (is_any(name, {"mmap", "mmap64", "munmap", "mremap", "brk", "sbrk", "syscall", "allocate_stack"}) ||
      name.starts_with("pthread_create"))
    return FrameRole::libc;
  if (is_standard_library(frame)) return FrameRole::standard;
  return FrameRole::program;
}

std::optional<Culprit> find_culprit(const Stack& stack, bool maps, const FrameRoles& roles) {
  Culprit culprit;
  std::optional<std::size_t> program;
  for (std::size_t i = 0; i < stack.frames.size(); ++i) {
    const Frame& frame = stack.frames[i];
    const std::string_view name = plain_name(frame);
    if (maps && i != 0 && !culprit.unmap_frame && is_unmap_function(name)) culprit.unmap_frame = i;
    if (program) continue;
    switch (role_of(frame, roles)) {
      case FrameRole::program:
        if (!is_inside_allocator(stack, i, roles)) program = i;
        continue;
      case FrameRole::hook:
        if (!culprit.hook_frame) culprit.hook_frame = i;
        break;
      case FrameRole::allocator:
        culprit.allocator_frame = i;
        if (const FrameRule* const rule = roles.rule_of(frame, module_name(frame)); rule && !culprit.runtime)
          culprit.runtime = rule->runtime;
        break;
      case FrameRole::standard: break;
      case FrameRole::loader:
      case FrameRole::libc:
        if (name.starts_with("pthread_create") || name == "allocate_stack") culprit.creates_thread = true;
        if (name.starts_with("dlopen") || name.starts_with("_dl_") || name.starts_with("dl_"))
          culprit.loads_library = true;
        break;
    }
  }
  if (culprit.unmap_frame) {
    program = culprit_below_unmap(stack, *culprit.unmap_frame, roles);
    if (!program) program = culprit.unmap_frame;
    if (culprit.allocator_frame && *culprit.allocator_frame > *program) culprit.allocator_frame.reset();
    if (culprit.hook_frame && *culprit.hook_frame > *program) culprit.hook_frame.reset();
  }
  if (!program && culprit.allocator_frame) {
    program = culprit.allocator_frame;
    culprit.beyond_stack = true;
  }
  if (!program) return std::nullopt;
  culprit.frame = *program;
  culprit.named_caller = caller_with_name(stack, *program, roles);
  return culprit;
}

}  // namespace whomap
