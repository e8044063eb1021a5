// SPDX-License-Identifier: Apache-2.0
// /proc/PID/smaps: the VMAs with what the kernel counts for each (man 5 proc_pid_smaps).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/process/vma.h"

namespace whomap {

/// The fields of fs/proc/task_mmu.c (Linux 6.12), in the order in which the kernel prints them.
enum class SmapsField : std::uint8_t {
  size,
  kernel_page_size,
  mmu_page_size,
  rss,
  pss,
  pss_dirty,
  shared_clean,
  shared_dirty,
  private_clean,
  private_dirty,
  referenced,
  anonymous,
  ksm,
  lazy_free,
  anon_huge_pages,
  shmem_pmd_mapped,
  file_pmd_mapped,
  shared_hugetlb,
  private_hugetlb,
  swap,
  swap_pss,
  locked,
  thp_eligible,
  protection_key,
};
inline constexpr std::size_t smaps_field_count = 24;
/// The kernel's names, by SmapsField.
extern const std::array<std::string_view, smaps_field_count> smaps_field_names;

struct SmapsEntry {
  Vma vma;
  /// The value of a field: bytes, or the plain number where the kernel prints no unit (THPeligible,
  /// ProtectionKey). nullopt when the kernel did not print it, which is not the same as 0.
  [[nodiscard]] std::optional<std::uint64_t> get(SmapsField field) const {
    const auto at = static_cast<std::size_t>(field);
    if ((present >> at & 1U) == 0) return std::nullopt;
    return values[at];
  }

  std::array<std::uint64_t, smaps_field_count> values{};
  std::uint32_t present = 0;  ///< bit per SmapsField
  std::string vm_flags;       ///< two-letter codes separated by spaces, "rd wr mr mw me ac"
  std::vector<std::pair<std::string, std::string>> unknown;  ///< fields of newer kernels, as printed
};

struct SmapsList {
  std::vector<SmapsEntry> entries;    ///< in the order of the file
  std::vector<std::string> unparsed;  ///< lines of no known shape, and fields before the first VMA
};

/// Parses the text of /proc/PID/smaps (or of smaps_rollup, or of maps: entries then have no fields).
SmapsList parse_smaps(std::string_view text);

}  // namespace whomap
