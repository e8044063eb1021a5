// SPDX-License-Identifier: Apache-2.0
#include "core/regions/classes.h"

#include <algorithm>
#include <optional>
#include <span>

#include <fmt/format.h>

namespace whomap {
namespace {

bool accessible(const Vma& vma) {
  return vma.readable || vma.writable || vma.executable;
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

/// `say` gets a function that makes the evidence, and calls it if it wants text.
template <class Say>
RegionKind by_name(const Region& region, const Say& say) {
  const Vma& vma = region.vma;
  const std::string_view name = vma.name;
  const auto kind = [&](RegionKind result, std::string_view how) {
    say([&] { return fmt::format(fmt::runtime(how), name); });
    return result;
  };
  if (name == "[heap]") return kind(RegionKind::heap, "the kernel names it [heap]");
  if (name == "[stack]") return kind(RegionKind::stack, "the kernel names it [stack]");
  // Linux 3.4 to 4.4 named thread stacks [stack:TID].
  if (name.starts_with("[stack:")) return kind(RegionKind::thread_stack, "the kernel names it {}");
  if (name.starts_with("[anon: glibc: pthread stack") || name.starts_with("[anon:clickhouse_stack"))
    return kind(RegionKind::thread_stack, "the program named it {}");
  if (name.starts_with("[anon: glibc: malloc arena"))
    return kind(RegionKind::glibc_arena, "the program named it {}");
  if (name.starts_with("[anon:") || name.starts_with("[anon_shmem:"))
    return kind(RegionKind::named, "the program named it {}");
  if (name.starts_with("[")) return kind(RegionKind::kernel, "the kernel names it {}");
  if (name.starts_with("/memfd:")) return kind(RegionKind::memfd, "a memory file (memfd_create)");
  if (name.starts_with("/dev/shm/"))
    return kind(RegionKind::shared_memory, "POSIX shared memory in /dev/shm");
  if (name.starts_with("/SYSV")) return kind(RegionKind::shared_memory, "System V shared memory (shmat)");
  if (name.starts_with("/dev/zero"))
    return kind(RegionKind::shared_memory, "shared anonymous memory (/dev/zero)");
  if (name.starts_with("/dev/") || name.starts_with("anon_inode:"))
    return kind(RegionKind::device, "maps {}");
  return kind(RegionKind::file, vma.shared ? "shared mapping of a file" : "private mapping of a file");
}

/// glibc's heaps of other arenas: aligned to HEAP_MAX_SIZE (64 MiB on 64-bit, malloc/arena.c), the part in
/// use readable and writable, the rest up to the next boundary reserved without access.
constexpr std::uint64_t arena_heap_max = std::uint64_t{64} << 20;

/// Go's heap has the same shape, arenas of 64 MiB that are opened bit by bit. Its first hint of an address is
/// 0xc000000000 (runtime/malloc.go, mallocinit), where nothing else lies by chance.
bool in_go_heap(const Vma& vma) {
  return vma.start >> 32 == 0xc0;
}

bool starts_arena(const Vma& vma) {
  return vma.start % arena_heap_max == 0 && vma.writable && !vma.executable && vma.size() <= arena_heap_max &&
         plain_anonymous(vma) && !in_go_heap(vma);
}

/// Where a heap begins that reaches to the end of region `index` and goes on as the reservation above it.
/// That may be inside the region: the kernel merges what the program mapped right below it.
std::optional<std::uint64_t> arena_in(const Snapshot& snapshot, std::size_t index) {
  const Vma& used = snapshot.regions[index].vma;
  const Region* const rest = neighbour(snapshot, index, +1);
  if (!plain_anonymous(used) || !used.writable || used.executable || rest == nullptr ||
      !plain_anonymous(rest->vma) || accessible(rest->vma) || rest->vma.end % arena_heap_max != 0 ||
      rest->vma.size() >= arena_heap_max || in_go_heap(used))
    return std::nullopt;
  const std::uint64_t start = rest->vma.end - arena_heap_max;
  if (start < used.start) return std::nullopt;
  return start;
}

bool is_rest_of_arena(const Snapshot& snapshot, std::size_t index) {
  return neighbour(snapshot, index, -1) != nullptr && arena_in(snapshot, index - 1).has_value();
}

/// A region that an arena shares with other memory has the class of its larger part, and says what the other
/// is.
template <class Say>
std::optional<RegionKind> as_arena(const Snapshot& snapshot, std::size_t index, const Say& say) {
  const Vma& vma = snapshot.regions[index].vma;
  const std::optional<std::uint64_t> start = arena_in(snapshot, index);
  if (!start) return std::nullopt;
  if (*start == vma.start) {
    say([&] { return std::string("starts at a multiple of 64 MiB, the rest up to the next is reserved"); });
    return RegionKind::glibc_arena;
  }
  const std::uint64_t used = vma.end - *start;
  say([&] {
    return fmt::format("its last {} KiB, from {:#x} on, are a glibc arena, merged with other memory below it",
                       used >> 10, *start);
  });
  return used >= vma.size() - used ? RegionKind::glibc_arena : RegionKind::anonymous;
}

/// The guard that allocate_stack of glibc (nptl/allocatestack.c) leaves without access below a stack, default
/// 4 KiB. Allocators guard their memory in the same way.
const Region* guard_below(const Snapshot& snapshot, std::size_t index) {
  constexpr std::uint64_t largest_guard = 64 << 10;
  const Region* guard = neighbour(snapshot, index, -1);
  return guard != nullptr && plain_anonymous(guard->vma) && !accessible(guard->vma) &&
                 guard->vma.size() <= largest_guard
             ? guard
             : nullptr;
}

/// Of the size that glibc gives a thread here: RLIMIT_STACK, or that of a live thread's stack.
bool has_size_of_a_stack(const Snapshot& snapshot, std::uint64_t size) {
  const ThreadStacks& stacks = snapshot.stacks;
  if (stacks.limit == size) return true;
  constexpr std::uint64_t size_when_unlimited = 2 << 20;  // ARCH_STACK_DEFAULT_SIZE of x86-64 and AArch64
  if (!stacks.limit && size == size_when_unlimited) return true;
  for (const ThreadStack& each : stacks.seen) {
    const auto at = std::upper_bound(
        snapshot.regions.begin(), snapshot.regions.end(), each.pointer,
        [](std::uint64_t pointer, const Region& region) { return pointer < region.vma.end; });
    if (at != snapshot.regions.end() && at->vma.start <= each.pointer && at->vma.size() == size) return true;
  }
  return false;
}

template <class Say>
std::optional<RegionKind> as_thread_stack(const Snapshot& snapshot, std::size_t index, const Say& say) {
  constexpr std::uint64_t smallest_stack = 16 << 10;  // PTHREAD_STACK_MIN
  const Vma& vma = snapshot.regions[index].vma;
  if (!vma.writable || vma.executable || vma.size() < smallest_stack) return std::nullopt;
  const Region* const guard = guard_below(snapshot, index);
  const std::span<const ThreadStack> threads = snapshot.stacks.threads_in(vma.range());
  if (!threads.empty()) {
    // Up to Linux 6.6 the kernel merges a stack with memory above it; coroutines and goroutines have their
    // stacks in a heap, and no guard. Neither end where the region does.
    constexpr std::uint64_t deep = 8 << 20, deep_without_guard = 1 << 20;
    const std::uint64_t deepest =
        guard != nullptr ? std::max(snapshot.stacks.limit.value_or(0), deep) : deep_without_guard;
    if (vma.end - threads.back().pointer > deepest) {
      say([&] {
        return fmt::format("no file; the stack of thread {} is only a part of it", threads.back().thread);
      });
      return RegionKind::anonymous;
    }
    say([&] {
      return threads.size() == 1
                 ? fmt::format("the stack pointer of thread {} lies in it", threads.front().thread)
                 : fmt::format("the stack pointers of {} threads lie in it", threads.size());
    });
    return RegionKind::thread_stack;
  }
  if (guard == nullptr) return std::nullopt;
  const auto guard_text = [&] {
    return fmt::format("a guard of {} KiB without access lies below it", guard->vma.size() >> 10);
  };
  if (!snapshot.stacks.complete()) {
    say(guard_text);
    return RegionKind::thread_stack;
  }
  if (!has_size_of_a_stack(snapshot, vma.size())) return std::nullopt;
  say([&] {
    return guard_text() +
           ", it has the size of a thread's stack, and no live thread's stack pointer lies in it";
  });
  return RegionKind::exited_thread_stack;
}

template <class Say>
RegionKind decide(const Snapshot& snapshot, std::size_t index, const Say& say) {
  const Region& region = snapshot.regions[index];
  const Vma& vma = region.vma;
  const auto kind = [&](RegionKind result, const char* evidence) {
    say([&] { return std::string(evidence); });
    return result;
  };
  if (has_flag(region, "ht")) return kind(RegionKind::huge_pages, "VmFlags has ht (hugetlb)");
  if (!vma.name.empty()) return by_name(region, say);
  if (vma.inode != 0) return kind(RegionKind::file, "has an inode and no name");
  if (has_flag(region, "gd")) return kind(RegionKind::grows_down, "VmFlags has gd (MAP_GROWSDOWN)");
  if (!accessible(vma))
    return kind(RegionKind::reservation, is_rest_of_arena(snapshot, index)
                                             ? "no access (PROT_NONE): the unused rest of a glibc arena"
                                             : "anonymous, no access (PROT_NONE)");
  if (vma.executable) return kind(RegionKind::jit, "anonymous and executable");
  if (const auto arena = as_arena(snapshot, index, say)) return *arena;
  if (const auto stack = as_thread_stack(snapshot, index, say)) return *stack;
  if (starts_arena(vma) && vma.size() == arena_heap_max)
    return kind(RegionKind::glibc_arena,
                "fills the 64 MiB from a multiple of 64 MiB on, as a full arena does");
  if (in_go_heap(vma)) return kind(RegionKind::anonymous, "no file, where Go's heap begins (0xc000000000)");
  return kind(RegionKind::anonymous, vma.shared ? "no file, shared" : "no file");
}

}  // namespace

bool has_flag(const Region& region, std::string_view code) {
  std::string_view flags = region.vm_flags;
  for (;;) {
    if (flags.substr(0, 2) == code && (flags.size() == 2 || flags[2] == ' ')) return true;
    const std::size_t space = flags.find(' ');
    if (space == std::string_view::npos) return false;
    flags.remove_prefix(space + 1);
  }
}

std::string_view to_string(RegionKind kind) {
  switch (kind) {
    case RegionKind::heap: return "heap";
    case RegionKind::stack: return "stack";
    case RegionKind::thread_stack: return "thread-stack";
    case RegionKind::exited_thread_stack: return "exited-thread-stack";
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
  RegionClass result;
  result.kind = decide(snapshot, index, [&](const auto& make) { result.evidence = make(); });
  return result;
}

RegionKind kind_of(const Snapshot& snapshot, std::size_t index) {
  return decide(snapshot, index, [](const auto&) {});
}

namespace {

/// The kernel's own files: their names end in " (deleted)" from the start.
bool never_had_a_name(const Vma& vma) {
  const std::string_view name = vma.name;
  return name.starts_with("/memfd:") || name.starts_with("/SYSV") || name.starts_with("/dev/zero") ||
         name.starts_with("/anon_hugepage");
}

}  // namespace

std::vector<std::string> traits(const Region& region) {
  const auto kib = [](std::uint64_t bytes) { return bytes >> 10; };
  std::vector<std::string> found;
  if (has_flag(region, "nr")) found.emplace_back("no swap is reserved for it (MAP_NORESERVE)");
  if (has_flag(region, "lo")) found.emplace_back("locked in memory (mlock)");
  if (has_flag(region, "ss")) found.emplace_back("a shadow stack (VmFlags has ss)");
  if (has_flag(region, "gu")) found.emplace_back("has guard pages in it (MADV_GUARD_INSTALL)");
  if (has_flag(region, "wf")) found.emplace_back("empty in children (MADV_WIPEONFORK)");
  if (region.anon_huge_pages.value_or(0) != 0)
    found.push_back(fmt::format("{} of {} KiB resident are transparent huge pages (AnonHugePages)",
                                kib(*region.anon_huge_pages), kib(region.rss.value_or(0))));
  if (region.hugetlb.value_or(0) != 0)
    found.push_back(
        fmt::format("{} KiB in pages of hugetlbfs, which RSS does not count", kib(*region.hugetlb)));
  if (region.lazy_free.value_or(0) != 0)
    found.push_back(fmt::format("{} of {} KiB resident are free for the kernel to take (LazyFree, MADV_FREE)",
                                kib(*region.lazy_free), kib(region.rss.value_or(0))));
  if (region.deleted == Deleted::yes && !never_had_a_name(region.vma))
    found.emplace_back("its file has been deleted");
  if (region.deleted == Deleted::unknown && !never_had_a_name(region.vma))
    found.emplace_back("deleted, or its name ends in \" (deleted)\": the file cannot be asked");
  if (region.swap.value_or(0) != 0) found.push_back(fmt::format("{} KiB are in swap", kib(*region.swap)));
  return found;
}

bool holds_file_pages(const Region& region) {
  const Vma& vma = region.vma;
  if (vma.inode == 0 || vma.name.starts_with("/memfd:") || vma.name.starts_with("/SYSV") ||
      vma.name.starts_with("/dev/"))
    return false;
  return vma.shared || !vma.writable;
}

}  // namespace whomap
