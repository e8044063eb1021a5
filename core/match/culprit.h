// SPDX-License-Identifier: Apache-2.0
// Whose code a stack is: the one frame that the first line of a report names.
#pragma once

#include <optional>
#include <string>

#include "core/match/frame_roles.h"
#include "core/match/runtime.h"
#include "core/symbols/frame.h"

namespace whomap {

FrameRole role_of(const Frame& frame, const FrameRoles& roles = FrameRoles::shipped());

/// The file name of a module path, without " (deleted)".
std::string module_name(const Frame& frame);
/// "leak_mmap", else "libfoo.so.1+0x1234", else "0x7f...".
std::string frame_name(const Frame& frame);
/// frame_name with where it is: "leak_mmap (ucx_case.c:52)", "leak_mmap (libfoo.so.1)".
std::string frame_place(const Frame& frame);

/// What a map for perf calls "Interpreter": Java code that runs interpreted, whichever it is.
bool is_java_interpreter(const Frame& frame);

struct Culprit {
  std::size_t frame = 0;  ///< index in the stack
  /// The map was made inside an unmapping function: index of that frame. Then the hook library is the
  /// culprit, not whoever called munmap.
  std::optional<std::size_t> unmap_frame;
  /// Innermost hook frame that the call went through on its way from the culprit.
  std::optional<std::size_t> hook_frame;
  std::optional<std::size_t> allocator_frame;  ///< outermost allocator frame inside the culprit
  /// Where `frame` has no name of its own: the innermost frame of the program further out that has one, if
  /// one is near.
  std::optional<std::size_t> named_caller;
  std::optional<Runtime> runtime;  ///< whose memory manager is among the allocator frames
  bool beyond_stack = false;       ///< the stack ends before the code that asked: `frame` is the allocator's
  bool creates_thread = false;     ///< through pthread_create
  bool loads_library = false;      ///< through dlopen
};

/// nullopt for a stack without frames, and when no frame is the program's own (a cut stack).
/// `maps`: the call makes a mapping (mmap, mremap, brk, shmat) rather than ends one.
std::optional<Culprit> find_culprit(const Stack& stack, bool maps,
                                    const FrameRoles& roles = FrameRoles::shipped());

}  // namespace whomap
