// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace whomap {

tl::unexpected<Error> fail(ErrorCode code, std::string happened, std::string remedy, int os_error) {
  // Says nothing about the file or process that was to be opened, whatever the caller takes it for.
  if (os_error == EMFILE || os_error == ENFILE)
    return tl::make_unexpected(
        Error{ErrorCode::kernel_feature, "too many open files: " + happened,
              os_error == EMFILE ? "allow whomap more of them with ulimit -n 1024"
                                 : "the whole machine is out of them: end something, or raise fs.file-max"});
  return tl::make_unexpected(Error{code, std::move(happened), std::move(remedy), os_error});
}

ExitStatus exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage: return ExitStatus::usage;
    case ErrorCode::own_process: return ExitStatus::usage;
    case ErrorCode::no_such_process:
    case ErrorCode::process_ended:
    case ErrorCode::process_replaced:
    case ErrorCode::process_stopped:
    case ErrorCode::process_zombie:
    case ErrorCode::kernel_thread:
    case ErrorCode::already_traced:
    case ErrorCode::not_stoppable: return ExitStatus::no_process;
    case ErrorCode::other_user:
    case ErrorCode::yama:
    case ErrorCode::missing_capability:
    case ErrorCode::not_permitted: return ExitStatus::not_permitted;
    case ErrorCode::unsupported_target:
    case ErrorCode::gdb_missing:
    case ErrorCode::gdb_without_python:
    case ErrorCode::gdb_failed:
    case ErrorCode::kernel_feature: return ExitStatus::missing;
    case ErrorCode::input_unreadable:
    case ErrorCode::input_damaged:
    case ErrorCode::input_kind:
    case ErrorCode::plan_mismatch: return ExitStatus::bad_input;
    case ErrorCode::output_exists:
    case ErrorCode::output_unwritable: return ExitStatus::output;
    case ErrorCode::interrupted: return ExitStatus::interrupted;
  }
  return ExitStatus::usage;
}

std::string to_line(const Error& error) {
  std::string line = error.happened;
  if (error.os_error != 0) line += fmt::format(": {}", std::strerror(error.os_error));
  if (!error.remedy.empty()) line += fmt::format("; {}", error.remedy);
  return printable(line);
}

namespace {

/// Length of the well-formed UTF-8 sequence that `text` starts with (RFC 3629), 0 when there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  std::size_t length = 0;
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF)
    length = 2;
  else if ((lead & 0xF0) == 0xE0)
    length = 3;
  else if (lead >= 0xF0 && lead <= 0xF4)
    length = 4;
  else
    return 0;
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
  if (lead == 0xED && byte(1) > 0x9F) return 0;  // surrogates
  if (lead == 0xF0 && byte(1) < 0x90) return 0;  // overlong
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // above U+10FFFF
  if (lead == 0xC2 && byte(1) < 0xA0) return 0;  // C1 control characters
  return length;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0 || lead < 0x20 || lead == 0x7F) {
      out += fmt::format("\\x{:02x}", lead);
      ++i;
      continue;
    }
    out.append(text.substr(i, length));
    i += length;
  }
  return out;
}

}  // namespace whomap
