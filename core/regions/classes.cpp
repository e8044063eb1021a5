// SPDX-License-Identifier: Apache-2.0
#include "core/regions/classes.h"

#include <fmt/format.h>

namespace whomap {
namespace {

bool accessible(const Vma& vma) {
  return vma.readable || vma.writable || vma.executable;
}

bool has_flag(const Region& region, std::string_view code) {
  std::string_view flags = region.vm_flags;
  for (;;) {
    if (flags.substr(0, 2) == code && (flags.size() == 2 || flags[2] == ' ')) return true;
    const std::size_t space = flags.find(' ');
    if (space == std::string_view::npos) return false;
    flags.remove_prefix(space + 1);
  }
}

const Region* neighbour(const Snapshot& snapshot, std::size_t index, int step) {
  if (step < 0 ? index == 0 : index + 1 >= snapshot.regions.size()) return nullptr;
  const Region& here = snapshot.regions[index];
  const Region& there = snapshot.regions[step < 0 ? index - 1 : index + 1];
  const bool touches = step < 0 ? there.vma.end == here.vma.start : there.vma.start == here.vma.end;
  return touches ? &there : nullptr;
}

bool plain_anonymous(const Vma& vma) {
  return vma.inode == 0 && vma.name.empty() && !vma.shared;
}

RegionClass by_name(const Region& region) {
  const Vma& vma = region.vma;
  const std::string_view name = vma.name;
  if (name == "[heap]") return {RegionKind::heap, "the kernel names it [heap]"};
  if (name == "[stack]") return {RegionKind::stack, "the kernel names it [stack]"};
  // Linux 3.4 to 4.4 named thread stacks [stack:TID].
  if (name.starts_with("[stack:"))
    return {RegionKind::thread_stack, fmt::format("the kernel names it {}", name)};
  if (name.starts_with("[anon: glibc: pthread stack") || name.starts_with("[anon:clickhouse_stack"))
    return {RegionKind::thread_stack, fmt::format("the program named it {}", name)};
  if (name.starts_with("[anon: glibc: malloc arena"))
    return {RegionKind::glibc_arena, fmt::format("the program named it {}", name)};
  if (name.starts_with("[anon:") || name.starts_with("[anon_shmem:"))
    return {RegionKind::named, fmt::format("the program named it {}", name)};
  if (name.starts_with("[")) return {RegionKind::kernel, fmt::format("the kernel names it {}", name)};
  if (name.starts_with("/memfd:")) return {RegionKind::memfd, "a memory file (memfd_create)"};
  if (name.starts_with("/dev/shm/")) return {RegionKind::shared_memory, "POSIX shared memory in /dev/shm"};
  if (name.starts_with("/SYSV")) return {RegionKind::shared_memory, "System V shared memory (shmat)"};
  if (name.starts_with("/dev/zero"))
    return {RegionKind::shared_memory, "shared anonymous memory (/dev/zero)"};
  if (name.starts_with("/dev/") || name.starts_with("anon_inode:"))
    return {RegionKind::device, fmt::format("maps {}", name)};
  return {RegionKind::file, fmt::format("{} mapping of a file", vma.shared ? "shared" : "private")};
}

/// glibc's heaps of other arenas: aligned to HEAP_MAX_SIZE (64 MiB on 64-bit, malloc/arena.c), the part in
/// use readable and writable, the rest up to the next boundary reserved without access.
bool is_glibc_arena(const Snapshot& snapshot, std::size_t index) {
  constexpr std::uint64_t heap_max = std::uint64_t{64} << 20;
  const Region& region = snapshot.regions[index];
  const Vma& vma = region.vma;
  if (vma.start % heap_max != 0 || !vma.writable || vma.size() > heap_max) return false;
  const Region* rest = neighbour(snapshot, index, +1);
  return rest != nullptr && plain_anonymous(rest->vma) && !accessible(rest->vma) &&
         rest->vma.end % heap_max == 0;
}

/// allocate_stack of glibc (nptl/allocatestack.c): a guard without access below, default 4 KiB.
bool is_thread_stack(const Snapshot& snapshot, std::size_t index) {
  constexpr std::uint64_t largest_guard = 64 << 10;
  constexpr std::uint64_t smallest_stack = 16 << 10;  // PTHREAD_STACK_MIN
  const Vma& vma = snapshot.regions[index].vma;
  const Region* guard = neighbour(snapshot, index, -1);
  return vma.writable && !vma.executable && vma.size() >= smallest_stack && guard != nullptr &&
         plain_anonymous(guard->vma) && !accessible(guard->vma) && guard->vma.size() <= largest_guard;
}

}  // namespace

std::string_view to_string(RegionKind kind) {
  switch (kind) {
    case RegionKind::heap: return "heap";
    case RegionKind::stack: return "stack";
    case RegionKind::thread_stack: return "thread-stack";
    case RegionKind::glibc_arena: return "glibc-arena";
    case RegionKind::anonymous: return "anonymous";
    case RegionKind::jit: return "jit";
    case RegionKind::reservation: return "reservation";
    case RegionKind::grows_down: return "grows-down";
    case RegionKind::huge_pages: return "huge-pages";
    case RegionKind::named: return "named";
    case RegionKind::file: return "file";
    case RegionKind::shared_memory: return "shared-memory";
    case RegionKind::memfd: return "memfd";
    case RegionKind::device: return "device";
    case RegionKind::kernel: return "kernel";
  }
  return "anonymous";
}

RegionClass classify(const Snapshot& snapshot, std::size_t index) {
  const Region& region = snapshot.regions[index];
  const Vma& vma = region.vma;
  if (has_flag(region, "ht")) return {RegionKind::huge_pages, "VmFlags has ht (hugetlb)"};
  if (!vma.name.empty()) return by_name(region);
  if (vma.inode != 0) return {RegionKind::file, "has an inode and no name"};
  if (has_flag(region, "gd")) return {RegionKind::grows_down, "VmFlags has gd (MAP_GROWSDOWN)"};
  if (!accessible(vma)) return {RegionKind::reservation, "anonymous, no access (PROT_NONE)"};
  if (vma.executable) return {RegionKind::jit, "anonymous and executable"};
  if (is_glibc_arena(snapshot, index))
    return {RegionKind::glibc_arena, "starts at a multiple of 64 MiB, the rest up to the next is reserved"};
  if (is_thread_stack(snapshot, index))
    return {RegionKind::thread_stack, fmt::format("a guard of {} KiB without access lies below it",
                                                  neighbour(snapshot, index, -1)->vma.size() >> 10)};
  return {RegionKind::anonymous, vma.shared ? "no file, shared" : "no file"};
}

bool holds_file_pages(const Region& region) {
  const Vma& vma = region.vma;
  if (vma.inode == 0 || vma.name.starts_with("/memfd:") || vma.name.starts_with("/SYSV") ||
      vma.name.starts_with("/dev/"))
    return false;
  return vma.shared || !vma.writable;
}

}  // namespace whomap
