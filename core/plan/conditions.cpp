// SPDX-License-Identifier: Apache-2.0
#include "core/plan/conditions.h"

#include <fmt/format.h>

namespace whomap {
namespace {

std::string any_of(const std::string& expression, const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers)
    text += fmt::format("{}{} == {}", text.empty() ? "" : " || ", expression, number);
  return text;
}

}  // namespace

std::string condition_at_syscall(const InstructionSet& set, const std::vector<std::int64_t>& numbers) {
  return any_of(fmt::format("${}", set.register_name(set.number_register)), numbers);
}

std::string condition_at_entry(const InstructionSet& set, const Value& number,
                               const std::vector<std::int64_t>& numbers) {
  if (number.kind() == Value::Kind::entry_register) {
    const char* const name = set.register_name(number.entry_register());
    // The caller may leave anything in the upper half of an int parameter (AMD64 ABI 3.2.3).
    return any_of(number.low_half() ? fmt::format("(int)${}", name) : fmt::format("${}", name), numbers);
  }
  if (number.kind() == Value::Kind::entry_stack)
    return any_of(fmt::format("*({}*)(${}+{})", number.low_half() ? "int" : "long",
                              set.register_name(set.stack_pointer), number.offset()),
                  numbers);
  return {};
}

}  // namespace whomap
