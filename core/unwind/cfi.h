// SPDX-License-Identifier: Apache-2.0
// The call frame information of one image: .eh_frame, else .debug_frame, of the file itself or of its
// separate debug file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <elfutils/libdw.h>

#include "core/elf/debug_file.h"
#include "core/elf/image.h"
#include "core/process/vma.h"
#include "core/unwind/row.h"

namespace whomap {

class CallFrameInfo {
 public:
  explicit CallFrameInfo(std::shared_ptr<const Image> image);
  ~CallFrameInfo();
  CallFrameInfo(const CallFrameInfo&) = delete;
  CallFrameInfo& operator=(const CallFrameInfo&) = delete;

  /// The row that is valid at `address` (link-time). A general row is added to general_rows().
  Row row_at(std::uint64_t address);
  [[nodiscard]] const GeneralRow& general_row(std::uint32_t index) const { return general_rows_[index]; }

  /// Is `address` in a function of Go's runtime that goes on on another stack? Its rows describe that stack
  /// as if it were the caller's, and would lead to whatever was left there.
  [[nodiscard]] bool switches_stacks(std::uint64_t address) const;

  [[nodiscard]] const Image& image() const { return *image_; }

 private:
  Dwarf_Frame* find_frame(std::uint64_t address);
  void open_debug_frame();

  std::shared_ptr<const Image> image_;
  Dwarf_CFI* eh_frame_ = nullptr;
  bool debug_frame_opened_ = false;
  std::optional<DebugInfo> debug_info_;
  Dwarf_CFI* debug_frame_ = nullptr;  ///< owned by debug_info_
  std::vector<GeneralRow> general_rows_;
  std::vector<AddressRange> stack_switches_;
};

}  // namespace whomap
