// SPDX-License-Identifier: Apache-2.0
#include "core/trace/default_name.h"

#include <cctype>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace whomap {

std::string default_trace_name(const TargetIdentity& target) {
  std::string comm;
  for (const char c : target.comm)
    comm += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-' ? c : '_';
  return fmt::format("whomap-{}-{}-{:%Y%m%dT%H%M%S}.trace", comm, target.pid,
                     fmt::localtime(std::time(nullptr)));
}

}  // namespace whomap
