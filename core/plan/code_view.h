// SPDX-License-Identifier: Apache-2.0
// The bytes of code as the target executes them, read without making the target grow.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/elf/image.h"
#include "core/elf/module_map.h"
#include "core/process/page_map.h"
#include "core/process/vma.h"

namespace whomap {

/// Executable memory of one module, of one anonymous area, or of a file on disk. Pages that the target has
/// changed come from its memory, all others from the file: reading a library through /proc/PID/mem would
/// page it in and count as growth.
class CodeView {
 public:
  /// The executable mappings of a module. Without `pages` everything is taken from the file; else they must
  /// outlive the view.
  static CodeView of_module(pid_t pid, const Module& module, const PageMap* pages);
  /// Memory without a usable file: only what is resident (`pages` must be known for that).
  static CodeView of_memory(pid_t pid, const std::vector<AddressRange>& ranges, const PageMap& pages);
  /// The executable segments of a file, at its link-time addresses.
  static CodeView of_file(std::shared_ptr<const Image> image);
  /// Bytes at an address, for tests.
  static CodeView of_bytes(std::uint64_t address, std::vector<std::uint8_t> bytes);

  /// Areas without a hole, ascending: neighbouring mappings are joined.
  [[nodiscard]] const std::vector<AddressRange>& areas() const { return areas_; }
  /// The area that contains `address`.
  [[nodiscard]] std::optional<AddressRange> area(std::uint64_t address) const;

  /// Copies from `address` on, up to the end of its area; returns the bytes copied.
  std::size_t read(std::uint64_t address, std::span<std::uint8_t> into) const;
  /// The same from the file where there is one, as if nothing had been changed.
  std::size_t read_original(std::uint64_t address, std::span<std::uint8_t> into) const;
  /// Data of the module (a jump table, a GOT slot) at a run-time address: from the target's memory where it
  /// has the page already, else from the file; returns the bytes copied.
  std::size_t read_data(std::uint64_t address, std::span<std::uint8_t> into) const;
  /// Does the target own a changed copy of a page in `range`?
  [[nodiscard]] bool has_changed_pages(AddressRange range) const;

  /// Bytes that could not be read, in all reads so far.
  [[nodiscard]] std::uint64_t unreadable_bytes() const { return unreadable_; }

 private:
  struct Piece {
    AddressRange range;
    bool from_memory = false;
    bool has_file = false;
    std::uint64_t file_offset = 0;
  };

  void add_mapping(AddressRange range, bool has_file, std::uint64_t file_offset,
                   const std::vector<AddressRange>& from_memory);
  void join_areas();
  std::size_t copy(std::uint64_t address, std::span<std::uint8_t> into, bool original) const;
  [[nodiscard]] std::size_t copy_piece(const Piece& piece, std::uint64_t address,
                                       std::span<std::uint8_t> into, bool original) const;

  /// Where the run of pages ends that lies at `address` and is the target's own, `address` when none does.
  [[nodiscard]] std::uint64_t end_of_own_pages(std::uint64_t address) const;

  pid_t pid_ = 0;
  int fd_ = -1;  ///< owned by image_
  std::shared_ptr<const Image> image_;
  std::uint64_t bias_ = 0;
  const PageMap* pages_ = nullptr;                          ///< must outlive the view
  std::shared_ptr<const std::vector<std::uint8_t>> bytes_;  ///< for of_bytes: a file held in memory
  std::vector<Piece> pieces_;                               ///< ascending
  std::vector<AddressRange> areas_;
  mutable AddressRange asked_;                   ///< what own_pages_ is of
  mutable std::vector<AddressRange> own_pages_;  ///< ascending
  mutable std::uint64_t unreadable_ = 0;
};

}  // namespace whomap
