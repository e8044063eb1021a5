// SPDX-License-Identifier: Apache-2.0
#include "core/trace/importers/log_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "core/process/syscalls.h"

namespace whomap {
namespace {

template <class Number>
std::optional<Number> take_digits(std::string_view& text, int base) {
  Number value = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (problem != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return value;
}

}  // namespace

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

void skip_spaces(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
}

std::optional<std::uint64_t> take_hex(std::string_view& text) {
  return take_digits<std::uint64_t>(text, 16);
}

std::optional<std::uint64_t> take_decimal(std::string_view& text) {
  return take_digits<std::uint64_t>(text, 10);
}

std::optional<std::uint64_t> take_number(std::string_view& text) {
  if (take(text, "(nil)") || take(text, "NULL")) return 0;
  if (take(text, "0x")) return take_hex(text);
  if (text.starts_with("-")) {
    const auto value = take_digits<std::int64_t>(text, 10);
    return value ? std::optional(static_cast<std::uint64_t>(*value)) : std::nullopt;
  }
  return take_decimal(text);
}

std::optional<std::uint64_t> take_seconds(std::string_view& text) {
  constexpr std::uint64_t second = 1'000'000'000;
  const auto whole = take_decimal(text);
  if (!whole || *whole > std::numeric_limits<std::uint64_t>::max() / second - 1) return std::nullopt;
  std::uint64_t ns = *whole * second;
  if (!take(text, ".")) return ns;
  std::uint64_t unit = second / 10;
  std::size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits, unit /= 10)
    ns += static_cast<std::uint64_t>(text[digits] - '0') * unit;
  if (digits == 0) return std::nullopt;
  text.remove_prefix(digits);
  return ns;
}

std::string_view without_offset(std::string_view symbol, std::uint64_t& offset) {
  offset = 0;
  const std::size_t plus = symbol.rfind('+');
  if (plus == std::string_view::npos || plus == 0) return symbol;
  std::string_view digits = symbol.substr(plus + 1);
  const auto value = take_number(digits);
  if (!value || !digits.empty()) return symbol;  // "operator+"
  offset = *value;
  return symbol.substr(0, plus);
}

void set_address(Frame& frame, std::uint64_t address) {
  constexpr std::uint64_t largest_link_address = std::uint64_t{1} << 32;
  frame.offset = address;
  frame.run_time = address > largest_link_address;
}

std::optional<Frame> symbol_frame(std::uint64_t at, std::string_view text) {
  if (!text.ends_with(")")) return std::nullopt;
  // Names of functions and of files hold parentheses too; paths begin with / or [.
  std::size_t open = std::string_view::npos;
  for (const std::string_view start : {" (/", " ([", " (inlined)"})
    if (const std::size_t found = text.rfind(start); found != std::string_view::npos)
      open = open == std::string_view::npos ? found : std::max(open, found);
  if (open == std::string_view::npos) open = text.rfind(" (");
  if (open == std::string_view::npos) return std::nullopt;
  Frame frame;
  set_address(frame, at);
  const std::string_view module = text.substr(open + 2, text.size() - open - 3);
  if (module == "inlined")
    frame.inlined = true;
  else if (module != "[unknown]")
    frame.module = module;
  std::uint64_t offset = 0;
  const std::string_view name = without_offset(text.substr(0, open), offset);
  if (!name.empty() && name != "[unknown]" && !name.starts_with("0x")) frame.function = name;
  return frame;
}

void mark_unfinished(LoggedCall& call) {
  // Where glibc, musl and the kernel's loader begin, and `main`, at which GDB stops.
  constexpr std::array<std::string_view, 12> starts{"_start",
                                                    "__libc_start_main",
                                                    "__libc_start_main_impl",
                                                    "__libc_start_call_main",
                                                    "clone",
                                                    "__clone",
                                                    "clone3",
                                                    "__clone3",
                                                    "main",
                                                    "_dl_start_user",
                                                    "start_thread",
                                                    "runtime.goexit"};
  // Where a walk along frame pointers meets code without them it takes any value for an address: such frames
  // are no callers, and make every stack another one.
  const auto nowhere = [](const Frame& frame) {
    return frame.module.empty() && !frame.function && !frame.file;
  };
  while (!call.frames.empty() && nowhere(call.frames.back())) {
    call.frames.pop_back();
    if (!call.truncated) call.truncated = "what the log has beyond this lies in no module";
  }
  if (call.truncated) return;
  if (call.frames.empty()) {
    call.truncated = "the log has no stack for this call";
    return;
  }
  const std::optional<std::string>& last = call.frames.back().function;
  std::string_view name = last ? std::string_view(*last) : std::string_view{};
  name = name.substr(0, name.find('@'));  // symbol versions
  if (std::find(starts.begin(), starts.end(), name) == starts.end())
    call.truncated = "the log has no frames beyond this one";
}

bool plausible_result(const LoggedCall& call) {
  constexpr std::uint64_t page = 4096;
  constexpr std::uint64_t address_space = std::uint64_t{1} << 56;  // x86-64 with five-level page tables
  const std::uint64_t value = call.result;
  const MemorySyscall* const known = memory_syscall(call.number);
  if (known == nullptr) return true;
  if (known->name == "brk") return value != 0 && value < address_space;
  if (is_syscall_error(value)) return true;
  if (known->name == "mmap" || known->name == "mremap" || known->name == "shmat")
    return value != 0 && value % page == 0 && value < address_space;
  return value == 0;
}

}  // namespace whomap
