// SPDX-License-Identifier: Apache-2.0
#include "core/process/own_memory.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "core/process/memory.h"
#include "core/process/page_map.h"

namespace whomap {
namespace {

constexpr std::string_view mark = "whomap stub 1";
constexpr std::size_t nonce_at = 16;
constexpr std::size_t nonce_length = 32;

}  // namespace

std::array<std::uint8_t, own_header_size> own_header(const std::string& nonce) {
  std::array<std::uint8_t, own_header_size> header{};
  std::copy(mark.begin(), mark.end(), header.begin());
  std::copy_n(nonce.begin(), std::min(nonce.size(), nonce_length), header.begin() + nonce_at);
  return header;
}

std::string nonce_of_header(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < own_header_size || !std::equal(mark.begin(), mark.end(), bytes.begin())) return {};
  const auto begin = bytes.begin() + nonce_at;
  return {begin, begin + nonce_length};
}

bool is_own_code(pid_t pid, const Vma& vma) {
  if (!vma.executable || vma.writable || vma.shared || vma.file_backed()) return false;
  std::array<std::uint8_t, own_header_size> header{};
  const std::size_t got = read_memory(pid, vma.start, std::as_writable_bytes(std::span(header)));
  return !nonce_of_header(std::span(header).first(got)).empty();
}

ResidentBytes resident_bytes(pid_t pid, std::span<const AddressRange> ranges) {
  ResidentBytes bytes;
  if (ranges.empty()) return bytes;
  const auto pages = PageMap::open(pid, static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  if (!pages) return bytes;
  for (const AddressRange& range : ranges) {
    std::uint64_t all = 0, own = 0;
    for (const AddressRange& run : pages->resident(range)) all += run.size();
    for (const AddressRange& run : pages->own_resident(range)) own += run.size();
    bytes.anonymous += own;
    bytes.shared += all - std::min(all, own);
  }
  return bytes;
}

std::uint64_t resident_ring_bytes(pid_t pid) {
  const auto maps = read_maps(pid);
  if (!maps) return 0;
  std::vector<AddressRange> rings;
  for (const Vma& vma : maps->vmas)
    if (vma.name == ring_mapping_name) rings.push_back(vma.range());
  return resident_bytes(pid, rings).shared;
}

}  // namespace whomap
