// SPDX-License-Identifier: Apache-2.0
#include "core/stub/placement.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace whomap {
namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;
constexpr std::uint64_t mib = std::uint64_t{1} << 20;
/// A jump reaches 2^31 bytes either way from its end; the margin is for its place within stub and site.
constexpr std::uint64_t reach = 2 * gib - mib;
constexpr std::uint64_t guard_pages = 16;  ///< stay unmapped on both sides: an overrun faults as before
constexpr std::uint64_t heap_room = gib;
constexpr std::uint64_t stack_room = 64 * mib;
/// vm.mmap_min_addr is 64 KiB by default; user addresses end below 2^47
/// (Documentation/arch/x86/x86_64/mm.rst).
constexpr std::uint64_t lowest_address = mib;
constexpr std::uint64_t highest_address = (std::uint64_t{1} << 47) - mib;

struct Hole {
  std::uint64_t start, end;
  bool top;  ///< above all libraries, below [stack]: the kernel maps there last
};

bool is_stack_or_kernel(const Vma& vma) {
  return vma.name == "[stack]" || vma.name.starts_with("[v");
}

/// Parts of the holes in which a place would be in nobody's way.
std::vector<Hole> usable_holes(const std::vector<Vma>& vmas, std::uint64_t page_size) {
  const std::uint64_t guard = guard_pages * page_size;
  // The program break lies above the program's last segment, a random distance away (man 2 brk,
  // randomize_va_space).
  std::uint64_t heap_end = 0;
  for (const Vma& vma : vmas)
    if (vma.name == "[heap]") heap_end = vma.end;
  std::vector<Hole> holes;
  std::uint64_t previous_end = lowest_address;
  bool above_program = false;
  const auto program =
      std::find_if(vmas.begin(), vmas.end(), [](const Vma& vma) { return vma.file_backed(); });
  for (std::size_t i = 0; i <= vmas.size(); ++i) {
    const std::uint64_t hole_end =
        i == vmas.size() ? highest_address : std::min(vmas[i].start, highest_address);
    Hole hole{previous_end + guard, hole_end, false};
    if (previous_end == heap_end || (heap_end == 0 && above_program)) hole.start = previous_end + heap_room;
    hole.end -= std::min(hole.end, stack_room);
    if (i < vmas.size() && is_stack_or_kernel(vmas[i])) hole.top = true;
    if (hole.start < hole.end) holes.push_back(hole);
    if (i == vmas.size()) break;
    previous_end = std::max(previous_end, vmas[i].end);
    above_program =
        program != vmas.end() && (vmas[i].name == program->name || (above_program && vmas[i].name.empty()));
  }
  std::stable_sort(holes.begin(), holes.end(), [](const Hole& a, const Hole& b) { return a.top > b.top; });
  return holes;
}

/// The lowest place in a usable hole that lies within reach of addresses from `lowest` to `highest`.
std::optional<std::uint64_t> place_for(const std::vector<Hole>& holes, std::uint64_t lowest,
                                       std::uint64_t highest, std::uint64_t size, std::uint64_t page_size) {
  const std::uint64_t from = highest > reach ? highest - reach : 0;
  const std::uint64_t to = lowest + reach;
  for (const Hole& hole : holes) {
    const std::uint64_t start = (std::max(hole.start, from) + page_size - 1) / page_size * page_size;
    if (start + size <= std::min(hole.end, to)) return start;
  }
  return std::nullopt;
}

}  // namespace

Placement find_places(const std::vector<Vma>& vmas, std::span<const std::uint64_t> sites, std::uint64_t size,
                      std::uint64_t page_size) {
  const std::vector<Hole> holes = usable_holes(vmas, page_size);
  std::vector<std::size_t> order(sites.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return sites[a] < sites[b]; });
  Placement placement;
  for (std::size_t first = 0; first < order.size();) {
    std::optional<Neighbourhood> best;
    for (std::size_t last = first; last < order.size(); ++last) {
      const auto place = place_for(holes, sites[order[first]], sites[order[last]], size, page_size);
      if (!place) break;
      const auto at = [&](std::size_t index) { return order.begin() + static_cast<std::ptrdiff_t>(index); };
      best = Neighbourhood{*place, {at(first), at(last + 1)}};
    }
    if (!best) {
      placement.unreachable.push_back(order[first++]);
      continue;
    }
    first += best->served.size();
    placement.neighbourhoods.push_back(std::move(*best));
  }
  return placement;
}

}  // namespace whomap
