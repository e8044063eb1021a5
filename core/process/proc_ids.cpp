// SPDX-License-Identifier: Apache-2.0
#include "core/process/proc_ids.h"

#include <dirent.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string_view>

namespace whomap {

std::vector<pid_t> proc_ids(const std::string& folder) {
  std::vector<pid_t> ids;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), ::closedir);
  while (const dirent* const entry = directory ? ::readdir(directory.get()) : nullptr) {
    pid_t id = 0;
    const std::string_view name = entry->d_name;
    const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (problem == std::errc{} && end == name.data() + name.size()) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace whomap
