// SPDX-License-Identifier: Apache-2.0
#include "core/process/processor_time.h"

#include <charconv>

#include <fmt/format.h>

#include "core/base/files.h"

namespace whomap {

std::optional<std::uint64_t> processor_time_ns(pid_t tid) {
  const auto text = read_file(fmt::format("/proc/{}/schedstat", tid));
  if (!text) return std::nullopt;
  std::uint64_t ns = 0;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), ns);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return ns;
}

}  // namespace whomap
