// SPDX-License-Identifier: Apache-2.0
// Who calls a dispatcher (a function that takes the system call's number as a parameter), and with what
// number?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/module_code.h"
#include "core/plan/value.h"

namespace whomap {

/// A function in whose parameter a number travels to a system call instruction.
struct Dispatcher {
  std::uint64_t entry = 0;  ///< run-time address
  std::string name;
  std::vector<std::string> aliases;  ///< names under which other modules import it
  Value parameter;                   ///< entry_register or entry_stack
};

struct DispatcherCall {
  std::uint64_t address = 0;  ///< of the call or jump instruction
  std::uint64_t next = 0;     ///< where the call returns to
  bool tail_jump = false;     ///< returns to the caller's caller instead
  CodeBounds bounds;
  Value number;            ///< what the caller puts into the parameter
  std::string dispatcher;  ///< name of the function called
};

/// Direct calls, calls through PLT stubs and through the GOT from `module` to `dispatcher`.
std::vector<DispatcherCall> find_dispatcher_calls(const ModuleCode& module, const Image* image,
                                                  const Dispatcher& dispatcher);

}  // namespace whomap
