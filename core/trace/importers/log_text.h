// SPDX-License-Identifier: Apache-2.0
// Pieces of text that several tools print in the same way.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/symbols/frame.h"
#include "core/trace/importers/log_parser.h"

namespace whomap {

/// Consumes `expected` from the front of `text`.
bool take(std::string_view& text, std::string_view expected);
void skip_spaces(std::string_view& text);

/// Consume digits from the front. "0x" is not expected.
std::optional<std::uint64_t> take_hex(std::string_view& text);
std::optional<std::uint64_t> take_decimal(std::string_view& text);
/// An argument as printf and strace write it: "0x7f00", "4096", "-1", "(nil)", "NULL".
std::optional<std::uint64_t> take_number(std::string_view& text);
/// "317.072490" -> nanoseconds.
std::optional<std::uint64_t> take_seconds(std::string_view& text);

/// `at` with what `text` says of it: "function+0x1d (/path/of/module)", "[unknown] (/path)", "function+29
/// (/path)". nullopt when it has no module in parentheses at its end.
std::optional<Frame> symbol_frame(std::uint64_t at, std::string_view text);

/// The function's name without "+0x1d"; how far into it goes to `offset`, 0 when it is not said.
std::string_view without_offset(std::string_view symbol, std::uint64_t& offset);

/// The offset of a frame from an address as a tool prints it. Link-time addresses of libraries are small;
/// what lies above 4 GiB is where the kernel had mapped it, and is marked so.
void set_address(Frame& frame, std::uint64_t address);

/// Takes frames at the end that lie nowhere off. Where the stack does not end in the code that starts
/// processes and threads, whoever recorded it did not see its end: then `truncated` says so. None of the
/// tools do.
void mark_unfinished(LoggedCall& call);

/// Can this call have returned this? Not exact: only what no kernel returns is refused.
bool plausible_result(const LoggedCall& call);

}  // namespace whomap
