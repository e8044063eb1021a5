// SPDX-License-Identifier: Apache-2.0
#include "core/process/statm.h"

#include <charconv>

#include "core/process/proc_error.h"

namespace whomap {

std::optional<Statm> parse_statm(std::string_view text) {
  Statm statm;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::uint64_t* const field :
       {&statm.size, &statm.resident, &statm.shared, &statm.text, &statm.lib, &statm.data, &statm.dt}) {
    while (at != end && *at == ' ') ++at;
    const auto [rest, problem] = std::from_chars(at, end, *field);
    if (problem != std::errc{} || (rest != end && *rest != ' ' && *rest != '\n')) return std::nullopt;
    at = rest;
  }
  return statm;
}

std::optional<Statm> read_statm(pid_t pid) {
  const auto text = read_proc_file(pid, "statm");
  return text ? parse_statm(*text) : std::nullopt;
}

}  // namespace whomap
