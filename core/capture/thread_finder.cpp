// SPDX-License-Identifier: Apache-2.0
#include "core/capture/thread_finder.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "core/base/clock.h"
#include "core/process/memory.h"

namespace whomap {
namespace {

constexpr std::uint64_t descriptor_bytes = 4096;
/// offsetof(struct pthread, tid) of glibc for x86-64 since 2.4 (nptl/descr.h: the header is padded to 704
/// bytes, two list pointers follow). Only used to decide between places that fit equally well.
constexpr std::uint64_t usual_offset = 720;

std::vector<std::byte> read_descriptor(pid_t pid, std::uint64_t base) {
  std::vector<std::byte> bytes(descriptor_bytes);
  bytes.resize(read_memory(pid, base, bytes));
  return bytes;
}

std::int32_t word_at(const std::vector<std::byte>& bytes, std::uint64_t offset) {
  std::int32_t word = 0;
  std::memcpy(&word, bytes.data() + offset, sizeof word);
  return word;
}

}  // namespace

ThreadFinder::ThreadFinder(pid_t pid, std::span<const std::pair<pid_t, std::uint64_t>> known) : pid_(pid) {
  constexpr std::size_t enough = 16;
  std::vector<std::uint64_t> candidates;
  for (std::size_t i = 0; i < known.size(); ++i) {
    known_[known[i].second] = {known[i].first, 0};
    if (i >= enough) continue;
    const auto descriptor = read_descriptor(pid, known[i].second);
    std::vector<std::uint64_t> fitting;
    for (std::uint64_t offset = 0; offset + sizeof(std::int32_t) <= descriptor.size();
         offset += sizeof(std::int32_t))
      if (word_at(descriptor, offset) == known[i].first &&
          (i == 0 || std::find(candidates.begin(), candidates.end(), offset) != candidates.end()))
        fitting.push_back(offset);
    candidates = std::move(fitting);
  }
  if (candidates.size() == 1)
    offset_ = candidates.front();
  else if (std::find(candidates.begin(), candidates.end(), usual_offset) != candidates.end())
    offset_ = usual_offset;
}

pid_t ThreadFinder::find(std::uint64_t thread_base) {
  if (thread_base == 0) return 0;
  const auto found = known_.find(thread_base);
  if (!offset_) return found == known_.end() ? 0 : found->second.tid;
  // Reading the target's memory takes the lock that its mmap calls wait for (12 us a call, measured), so it
  // is done once for each thread: an id stays right as long as its thread lives.
  constexpr std::uint64_t look_every_ns = 1'000'000;
  const std::uint64_t now = monotonic_ns();
  if (found != known_.end() && now < found->second.looked_ns + look_every_ns) return found->second.tid;
  if (found != known_.end() &&
      ::access(fmt::format("/proc/{}/task/{}", pid_, found->second.tid).c_str(), F_OK) == 0) {
    found->second.looked_ns = now;
    return found->second.tid;
  }
  std::int32_t tid = 0;
  if (read_memory(pid_, thread_base + *offset_, std::as_writable_bytes(std::span(&tid, 1))) != sizeof tid ||
      tid <= 0)
    return 0;
  known_[thread_base] = {tid, now};
  return tid;
}

}  // namespace whomap
