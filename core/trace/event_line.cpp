// SPDX-License-Identifier: Apache-2.0
#include "core/trace/event_line.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <iterator>
#include <limits>

#include <fmt/format.h>

#include "core/base/json_fields.h"
#include "core/process/syscalls.h"

namespace whomap {
namespace {

/// Values of hexadecimal digits; 0xff for all other bytes.
constexpr std::array<std::uint8_t, 256> hex_digits = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(0xff);
  for (std::uint8_t digit = 0; digit < 10; ++digit) values[static_cast<std::size_t>('0') + digit] = digit;
  for (std::uint8_t digit = 10; digit < 16; ++digit) {
    values[static_cast<std::size_t>('a') + digit - 10] = digit;
    values[static_cast<std::size_t>('A') + digit - 10] = digit;
  }
  return values;
}();

/// The value of eight decimal digits; nullopt when one of the bytes is none. Eight at once, as lanes of a
/// register: a digit at a time waits for each multiplication.
std::optional<std::uint64_t> eight_digits(const char* text) {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t lanes = 0;
  std::memcpy(&lanes, text, sizeof lanes);
  constexpr std::uint64_t every = 0x0101010101010101;
  // '0'..'9' are 0x30..0x39: the high half is 3, and stays 3 when 6 is added to the low half.
  if (((lanes & every * 0xf0) | ((lanes + every * 6) & every * 0xf0) >> 4) != every * 0x33)
    return std::nullopt;
  lanes -= every * '0';
  lanes = lanes * 10 + (lanes >> 8);
  lanes = ((lanes & 0x000000ff000000ff) * 0x000f424000000064 +
           ((lanes >> 16) & 0x000000ff000000ff) * 0x0000271000000001) >>
          32;
  return lanes & 0xffffffff;
}

/// Consumes the text of a line from its front. The line must end in a byte that is no digit: numbers are
/// read up to the first such byte, without looking for the end.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  template <std::size_t size>
  bool literal(const char (&expected)[size]) {
    constexpr std::size_t length = size - 1;  // without the terminating zero; a constant: no call of memcmp
    if (left() < length || std::memcmp(at_, expected, length) != 0) return false;
    at_ += length;
    return true;
  }

  /// JSON forbids leading zeros. False also for a value that Number cannot hold.
  template <class Number>
  bool decimal(Number& value) {
    const char* const start = at_;
    std::uint64_t sum = 0;
    while (left() >= 8) {
      const auto digits = eight_digits(at_);
      if (!digits) break;
      sum = sum * 100'000'000 + *digits;
      at_ += 8;
    }
    for (; *at_ >= '0' && *at_ <= '9'; ++at_) sum = sum * 10 + static_cast<std::uint64_t>(*at_ - '0');
    const auto length = at_ - start;
    if (length == 0 || (*start == '0' && length > 1)) return false;
    constexpr auto surely_fits = std::numeric_limits<std::uint64_t>::digits10;
    if (length > surely_fits && std::from_chars(start, at_, sum).ec != std::errc{}) return false;
    if (sum > static_cast<std::uint64_t>(std::numeric_limits<Number>::max())) return false;
    value = static_cast<Number>(sum);
    return true;
  }

  /// "0x..." with its quotes.
  bool quoted_hex(std::uint64_t& value) {
    if (literal("\"0xffffffffffffffff\"")) {  // no file
      value = ~std::uint64_t{0};
      return true;
    }
    if (!literal("\"0x")) return false;
    const char* const start = at_;
    value = 0;
    for (std::uint8_t digit = 0; (digit = hex_digits[static_cast<unsigned char>(*at_)]) < 16; ++at_)
      value = value << 4 | digit;
    return at_ != start && at_ - start <= 16 && literal("\"");
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
  [[nodiscard]] std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

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
  if (!line.starts_with(event_line_start) || !line.ends_with('}')) return std::nullopt;
  Scanner scan(line.substr(event_line_start.size()));
  if (!scan.literal("\"enter_ns\":") || !scan.decimal(call.enter_ns) || !scan.literal(",\"exit_ns\":") ||
      !scan.decimal(call.exit_ns) || !scan.literal(",\"tid\":") || !scan.decimal(call.tid) ||
      !scan.literal(",\"call\":"))
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
      !scan.literal("}") || !scan.done() || call.exit_ns < call.enter_ns ||
      call.number > std::numeric_limits<std::int32_t>::max())
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
