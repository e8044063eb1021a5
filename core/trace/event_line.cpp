// SPDX-License-Identifier: Apache-2.0
#include "core/trace/event_line.h"

#include <charconv>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include "core/base/json_fields.h"
#include "core/process/syscalls.h"

namespace whomap {
namespace {

/// Consumes the text of a line from its front.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool literal(std::string_view expected) {
    if (static_cast<std::size_t>(end_ - at_) < expected.size() ||
        std::string_view(at_, expected.size()) != expected)
      return false;
    at_ += expected.size();
    return true;
  }

  /// JSON forbids leading zeros; from_chars alone would take them.
  template <class Number>
  bool decimal(Number& value) {
    if (at_ == end_ || (*at_ == '0' && at_ + 1 != end_ && at_[1] >= '0' && at_[1] <= '9')) return false;
    return number(value, 10);
  }
  /// "0x..." with its quotes.
  bool quoted_hex(std::uint64_t& value) {
    return literal("\"0x") && end_ != at_ && *at_ != '-' && number(value, 16) && literal("\"");
  }
  bool quoted_word(std::string_view& word) {
    if (!literal("\"")) return false;
    const char* const start = at_;
    while (at_ != end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= 0x20) ++at_;
    word = {start, static_cast<std::size_t>(at_ - start)};
    return literal("\"");
  }
  [[nodiscard]] bool done() const { return at_ == end_; }

 private:
  template <class Number>
  bool number(Number& value, int base) {
    const auto [rest, problem] = std::from_chars(at_, end_, value, base);
    if (problem != std::errc{}) return false;
    at_ = rest;
    return true;
  }

  const char* at_;
  const char* end_;
};

}  // namespace

void append_event_line(std::string& out, const TraceEvent& event) {
  const CallEvent& call = event.call;
  const MemorySyscall* const known = memory_syscall(call.number);
  auto to = std::back_inserter(out);
  to = fmt::format_to(to, R"({{"type":"event","enter_ns":{},"exit_ns":{},"tid":{},"call":)", call.enter_ns,
                      call.exit_ns, call.tid);
  if (known != nullptr)
    to = fmt::format_to(to, R"("{}","args":[)", known->name);
  else
    to = fmt::format_to(to, R"({},"args":[)", call.number);
  const std::size_t arguments =
      known != nullptr ? static_cast<std::size_t>(known->arguments) : call.arguments.size();
  for (std::size_t i = 0; i < arguments; ++i)
    to = fmt::format_to(to, R"({}"{:#x}")", i == 0 ? "" : ",", call.arguments[i]);
  fmt::format_to(to, R"(],"result":"{:#x}","site":{},"stack":{}}})", call.result, call.site, event.stack);
  out += '\n';
}

std::optional<TraceEvent> parse_event_line(std::string_view line) {
  TraceEvent event;
  CallEvent& call = event.call;
  Scanner scan(line);
  if (!scan.literal(event_line_start) || !scan.literal("\"enter_ns\":") || !scan.decimal(call.enter_ns) ||
      !scan.literal(",\"exit_ns\":") || !scan.decimal(call.exit_ns) || !scan.literal(",\"tid\":") ||
      !scan.decimal(call.tid) || !scan.literal(",\"call\":"))
    return std::nullopt;
  if (std::string_view name; scan.quoted_word(name)) {
    const MemorySyscall* const known = memory_syscall(name);
    if (known == nullptr) return std::nullopt;
    call.number = known->x86_64;
  } else if (!scan.decimal(call.number)) {
    return std::nullopt;
  }
  if (!scan.literal(",\"args\":[")) return std::nullopt;
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    if (scan.literal("]")) break;
    if (i != 0 && !scan.literal(",")) return std::nullopt;
    if (!scan.quoted_hex(call.arguments[i])) return std::nullopt;
    if (i + 1 == call.arguments.size() && !scan.literal("]")) return std::nullopt;
  }
  if (!scan.literal(",\"result\":") || !scan.quoted_hex(call.result) || !scan.literal(",\"site\":") ||
      !scan.decimal(call.site) || !scan.literal(",\"stack\":") || !scan.decimal(event.stack) ||
      !scan.literal("}") || !scan.done() || call.exit_ns < call.enter_ns || call.tid < 0 || call.number < 0)
    return std::nullopt;
  return event;
}

std::optional<TraceEvent> event_from_json(const nlohmann::json& record) {
  TraceEvent event;
  CallEvent& call = event.call;
  const auto exit = json_unsigned(record, "exit_ns");
  const auto tid = json_unsigned(record, "tid");
  const auto result = json_hex(record, "result");
  const auto stack = json_unsigned(record, "stack");
  const nlohmann::json* const name = json_member(record, "call");
  const nlohmann::json* const arguments = json_member(record, "args");
  constexpr std::uint64_t id_limit = std::numeric_limits<std::uint32_t>::max();
  constexpr std::uint64_t signed_limit = std::numeric_limits<std::int32_t>::max();
  if (!exit || !tid || *tid > signed_limit || !result || !stack || *stack > id_limit || name == nullptr ||
      arguments == nullptr || !arguments->is_array() || arguments->size() > call.arguments.size())
    return std::nullopt;
  if (name->is_string()) {
    const MemorySyscall* const known = memory_syscall(std::string_view(*name->get_ptr<const std::string*>()));
    if (known == nullptr) return std::nullopt;
    call.number = known->x86_64;
  } else if (const auto number = json_unsigned(record, "call"); number && *number <= signed_limit) {
    call.number = static_cast<std::int64_t>(*number);
  } else {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < arguments->size(); ++i) {
    const nlohmann::json& argument = (*arguments)[i];
    const auto value =
        argument.is_string() ? parse_hex(*argument.get_ptr<const std::string*>()) : std::nullopt;
    if (!value) return std::nullopt;
    call.arguments[i] = *value;
  }
  const std::uint64_t site = json_unsigned(record, "site").value_or(0);
  if (site > id_limit) return std::nullopt;
  call.exit_ns = *exit;
  call.enter_ns = json_unsigned(record, "enter_ns").value_or(*exit);
  if (call.enter_ns > call.exit_ns) return std::nullopt;
  call.tid = static_cast<pid_t>(*tid);
  call.result = *result;
  call.site = static_cast<std::uint32_t>(site);
  event.stack = static_cast<std::uint32_t>(*stack);
  return event;
}

}  // namespace whomap
