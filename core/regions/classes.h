// SPDX-License-Identifier: Apache-2.0
// What a region is, and how one can tell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/regions/snapshot.h"

namespace whomap {

enum class RegionKind {
  heap,   ///< moved by brk
  stack,  ///< of the main thread
  thread_stack,
  exited_thread_stack,  ///< its thread has ended, and nobody has unmapped it
  glibc_arena,          ///< a heap of a malloc arena other than the main one
  anonymous,
  jit,          ///< anonymous and executable
  reservation,  ///< no access (PROT_NONE)
  grows_down,   ///< MAP_GROWSDOWN: the kernel extends it when it is touched below its start
  huge_pages,   ///< hugetlb
  named,        ///< anonymous memory with a name given by prctl(PR_SET_VMA_ANON_NAME)
  file,
  shared_memory,  ///< POSIX or System V shared memory, /dev/zero shared
  memfd,
  device,
  kernel,  ///< vdso, vvar, vsyscall
};

/// As the report writes it: "heap", "thread-stack", ...
std::string_view to_string(RegionKind kind);

struct RegionClass {
  RegionKind kind = RegionKind::anonymous;
  std::string evidence;  ///< one phrase: what in the region or beside it says so
};

/// Class of snapshot.regions[index]; looks at its neighbours too (guard pages, the rest of an arena), and at
/// the threads' stack pointers where the snapshot has them.
RegionClass classify(const Snapshot& snapshot, std::size_t index);
/// The kind alone, without making text: for all regions of a large process.
RegionKind kind_of(const Snapshot& snapshot, std::size_t index);

/// What else is true of a region, whatever its class: one phrase each, such as "no swap is reserved for it
/// (MAP_NORESERVE)". Sizes are those of this region.
std::vector<std::string> traits(const Region& region);

/// VmFlags has this two-letter code (man 5 proc_pid_smaps). False where the flags are unknown.
bool has_flag(const Region& region, std::string_view code);

/// Memory that can only hold pages of a file: its resident pages are RssFile until they are written to.
bool holds_file_pages(const Region& region);

}  // namespace whomap
