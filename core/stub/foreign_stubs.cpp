// SPDX-License-Identifier: Apache-2.0
#include "core/stub/foreign_stubs.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "core/process/memory.h"
#include "core/process/own_memory.h"
#include "core/process/page_map.h"
#include "core/process/vma.h"
#include "core/stub/carriers.h"
#include "core/stub/stub_state.h"

namespace whomap {
namespace {

std::string nonce_at(pid_t pid, std::uint64_t address) {
  return nonce_of_header(read_bytes(pid, address, own_header_size));
}

/// Where the first `jmp rel32` of the bytes that leads into one of the areas lies; 0 when there is none.
std::uint64_t find_jump(const std::vector<std::uint8_t>& bytes, std::uint64_t start,
                        const std::vector<AddressRange>& areas) {
  constexpr std::uint8_t opcode = 0xE9;
  constexpr std::size_t length = 5;
  for (std::size_t i = 0; i + length <= bytes.size(); ++i) {
    if (bytes[i] != opcode) continue;
    std::int32_t distance = 0;
    std::memcpy(&distance, &bytes[i + 1], sizeof distance);
    const std::uint64_t to =
        start + i + length + static_cast<std::uint64_t>(static_cast<std::int64_t>(distance));
    if (std::any_of(areas.begin(), areas.end(), [&](const AddressRange& each) { return each.contains(to); }))
      return start + i;
  }
  return 0;
}

Error refusal(pid_t pid, std::uint64_t jump) {
  if (state_of_carrier(pid))
    return {ErrorCode::already_traced,
            fmt::format("process {} has taken stubs of a trace along when it was forked", pid),
            fmt::format("run 'whomap repair -p {}' first", pid)};
  return {ErrorCode::already_traced,
          fmt::format("process {} has stubs of another whomap in it: one is jumped to at {:#x}", pid, jump),
          fmt::format(
              "if that has ended, run 'WHOMAP_STATE_DIR=FOLDER whomap repair -p {}' with the folder it used",
              pid)};
}

}  // namespace

std::optional<Error> find_foreign_stubs(const Target& target) {
  const pid_t pid = target.pid();
  const auto maps = read_maps(pid);
  if (!maps) return std::nullopt;
  std::vector<const Vma*> code;
  std::vector<AddressRange> stubs;
  for (const Vma& vma : maps->vmas) {
    if (is_own_code(pid, vma))
      stubs.push_back(vma.range());
    else if (vma.executable && !vma.shared)
      code.push_back(&vma);
  }
  if (stubs.empty()) return std::nullopt;
  const auto state = load_state(target.identity());
  if (!state) return std::nullopt;  // said by whoever needs the state
  if (*state)
    std::erase_if(stubs,
                  [&](const AddressRange& each) { return nonce_at(pid, each.start) == (*state)->nonce; });
  const auto pages = PageMap::open(pid, static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  if (stubs.empty() || !pages) return std::nullopt;
  for (const Vma* const vma : code) {
    for (const AddressRange& written : pages->pages(vma->range(), true)) {
      // The last bytes of a jump may lie on the next page.
      constexpr std::uint64_t beyond = 4;
      const std::uint64_t end = std::min(written.end + beyond, vma->end);
      const std::uint64_t jump =
          find_jump(read_bytes(pid, written.start, end - written.start), written.start, stubs);
      if (jump == 0) continue;
      return refusal(pid, jump);
    }
  }
  return std::nullopt;
}

}  // namespace whomap
