// SPDX-License-Identifier: Apache-2.0
// Errors are values: a code that decides the exit status, what happened, and what to do about it.
// They become a line of text in exactly one place, to_line().
#pragma once

#include <string>
#include <string_view>

#include <tl/expected.hpp>

namespace whomap {

/// Exit status of the program; the table is part of the interface (README, --help).
enum class ExitStatus : int {
  done = 0,
  negative = 1,
  usage = 2,
  no_process = 3,
  not_permitted = 4,
  missing = 5,
  bad_input = 6,
  inconclusive = 7,
  output = 8,
  interrupted = 130,
};

enum class ErrorCode {
  usage,
  no_such_process,
  process_ended,
  process_replaced,  ///< exec'd, or the pid now belongs to another process
  process_stopped,   ///< job control (state T) or a tracer's stop (state t)
  process_zombie,
  kernel_thread,
  own_process,
  already_traced,
  not_stoppable,  ///< a thread in uninterruptible sleep
  other_user,
  yama,
  missing_capability,
  not_permitted,  ///< refused, and none of the known reasons applies
  unsupported_target,
  gdb_missing,
  gdb_without_python,
  gdb_failed,
  kernel_feature,
  input_unreadable,
  input_damaged,
  input_kind,
  plan_mismatch,
  output_exists,
  output_unwritable,
  interrupted,
};

struct Error {
  ErrorCode code;
  std::string happened;  ///< what happened, naming the pid, path or address it happened to
  std::string remedy;    ///< what was needed and what to do; may be empty
  int os_error = 0;      ///< errno of the failed call, 0 when there was none
};

template <class T>
using Result = tl::expected<T, Error>;

tl::unexpected<Error> fail(ErrorCode code, std::string happened, std::string remedy = {}, int os_error = 0);

ExitStatus exit_status(ErrorCode code);

/// One line without a newline at its end; control characters of names in it are escaped.
std::string to_line(const Error& error);

/// `text` with control characters and invalid bytes written as \xNN, so that a name taken from
/// a target can neither break a line nor drive a terminal.
std::string printable(std::string_view text);

}  // namespace whomap
