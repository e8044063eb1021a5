// SPDX-License-Identifier: Apache-2.0
// /proc/PID/smaps: the VMAs with what the kernel counts for each (man 5 proc_pid_smaps).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/process/vma.h"

namespace whomap {

/// The fields of fs/proc/task_mmu.c (Linux 6.12), in the order in which the kernel prints them; the three
/// after pss_dirty are in smaps_rollup only.
enum class SmapsField : std::uint8_t {
  size,
  kernel_page_size,
  mmu_page_size,
  rss,
  pss,
  pss_dirty,
  pss_anon,
  pss_file,
  pss_shmem,
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
inline constexpr std::size_t smaps_field_count = 27;
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

/// Parses the text of /proc/PID/smaps (or of smaps_rollup, or of maps: entries then have no fields) as it is
/// read, so that the 70 MB of 100,000 mappings are never in memory at once.
class SmapsParser {
 public:
  /// `entry` gets each mapping once it is whole, and may move from it.
  explicit SmapsParser(std::function<void(SmapsEntry&)> entry) : on_entry_(std::move(entry)) {}

  /// The next piece of the text; pieces may end anywhere.
  void feed(std::string_view piece);
  /// The text has ended: hands out the last entry. A last line without its newline counts as cut, and is
  /// unparsed unless it is whole.
  void finish();

  /// Lines of no known shape, and fields that belong to no mapping.
  [[nodiscard]] const std::vector<std::string>& unparsed() const { return unparsed_; }

 private:
  void line(std::string_view text, bool cut);
  bool field(std::string_view text);
  void usual_fields(std::string_view& text);
  void hand_out();

  std::function<void(SmapsEntry&)> on_entry_;
  SmapsEntry entry_;
  bool in_entry_ = false;  ///< the fields after a VMA line that did not parse belong to no entry
  std::size_t guess_ = 0;  ///< the field that should come next
  std::string carry_;      ///< the beginning of a line that the next piece goes on with
  std::vector<std::string> unparsed_;
};

struct SmapsList {
  std::vector<SmapsEntry> entries;    ///< in the order of the file
  std::vector<std::string> unparsed;  ///< lines of no known shape, and fields before the first VMA
};

/// The same for a text that is there as a whole.
SmapsList parse_smaps(std::string_view text);

}  // namespace whomap
