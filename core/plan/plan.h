// SPDX-License-Identifier: Apache-2.0
// The plan: every instruction through which the target enters the kernel for memory, and how each
// one is watched.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/process/target.h"

namespace whomap {

/// How the number of a site's system call is known (design: constant, caller-constant, variable).
enum class NumberKind { constant, caller_constant, variable };

/// What whomap does at a site.
enum class WatchKind {
  return_breakpoint,   ///< one stop, at return_address: arguments and result are in the registers
  paired_breakpoints,  ///< a stop at syscall_address and one at return_address, paired per thread
  none,                ///< left out; `reason` says why
};

/// Evidence for the number: the instruction that sets it.
struct NumberProof {
  std::uint64_t address = 0;  ///< run-time address
  std::string instruction;    ///< as disassembled
};

/// How often a site was executed while it was observed.
struct ObservedRate {
  double per_second = 0;
  bool at_least = false;  ///< counting itself slowed the hits down: the true rate is higher
};

/// Where a stub's jump can go (core/stub): in the place of one instruction before the `syscall`.
struct StubRoom {
  bool possible = false;
  std::string reason;              ///< why, or why not
  std::uint64_t address = 0;       ///< run-time address of the instruction; 0 when there is none
  std::uint8_t length = 0;         ///< of the instruction, bytes: 5 or more
  std::vector<std::uint8_t> code;  ///< from `address` up to the `syscall`: what moves into the stub
};

struct Site {
  std::uint32_t id = 0;  ///< index in Plan::sites
  std::string module;    ///< path as mapped; "[anon]" for code without a file
  std::string build_id;
  std::string symbol;               ///< function the instruction lies in; empty when unknown
  std::uint64_t symbol_offset = 0;  ///< of the syscall instruction (or call) in that function

  /// Run-time addresses. For a caller-constant site: of the function that calls the dispatcher, of the call
  /// instruction, and of the instruction after the call (0 for a tail jump, which does not come back there).
  std::uint64_t entry = 0;  ///< 0 when the function's start is unknown, and then entry_offset is 0 too
  std::uint64_t syscall_address = 0;
  std::uint64_t return_address = 0;
  /// The same as link-time addresses (run-time address - load bias), which do not change between processes.
  std::uint64_t entry_offset = 0;
  std::uint64_t syscall_offset = 0;
  std::uint64_t return_offset = 0;

  NumberKind kind = NumberKind::variable;
  std::optional<std::int64_t> number;       ///< for constant and caller-constant
  std::vector<std::int64_t> numbers;        ///< the watched numbers that may pass: one, or many for variable
  std::vector<std::int64_t> other_numbers;  ///< numbers that are not watched and are known to pass here too
  bool any_number = false;                  ///< any other number may pass: it is only known at run time
  std::optional<NumberProof> proof;
  std::string dispatcher;  ///< caller-constant: the function called, e.g. "syscall"

  std::string condition_at_syscall;  ///< GDB syntax, e.g. "$rax == 9 || $rax == 11"; empty: none needed
  std::string condition_at_entry;    ///< GDB syntax, e.g. "$rdi == 9"; empty: none needed or not possible

  WatchKind watch = WatchKind::none;
  std::string reason;              ///< why this way, in a few words
  std::vector<std::uint8_t> code;  ///< bytes found at code_address, to recognise the same code again
  std::uint64_t code_address = 0;  ///< run-time address of code[0]

  StubRoom stub;  ///< for sites that are watched

  std::optional<ObservedRate> observed;  ///< filled in by observe(); not read back from a saved plan
};

struct Plan {
  TargetIdentity target;              ///< all empty for the plan of a file on disk
  std::string machine = "x86_64";     ///< or "aarch64"; decides what the numbers mean
  std::uint64_t page_size = 4096;     ///< bytes
  std::vector<std::int64_t> watched;  ///< system call numbers the plan is for
  std::vector<Site> sites;
  std::string observed_how;        ///< what observe() did and what it cost; empty: it was not asked
  std::vector<std::string> notes;  ///< what could not be looked at, and why
};

nlohmann::ordered_json to_json(const Plan& plan);
/// Errors: input_kind (another format or version), input_damaged naming the field that is missing or wrong.
Result<Plan> plan_from_json(const nlohmann::json& json);
/// Errors: input_unreadable, input_damaged (not JSON), input_kind (JSON of another kind or version).
Result<Plan> load_plan(const std::string& path);

}  // namespace whomap
