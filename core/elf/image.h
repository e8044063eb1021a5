// SPDX-License-Identifier: Apache-2.0
// One ELF file (or the vDSO's memory), independent of where it is mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <libelf.h>

#include "core/base/error.h"
#include "core/base/unique_fd.h"

namespace whomap {

/// A PT_LOAD program header.
struct Segment {
  std::uint64_t offset = 0;  ///< in the file
  std::uint64_t vaddr = 0;   ///< link-time address
  std::uint64_t file_size = 0;
  std::uint64_t memory_size = 0;
  bool executable = false;
};

class Image {
 public:
  /// Takes the open file. Errors: input_kind when it is not ELF, input_damaged when its headers are.
  static Result<std::shared_ptr<const Image>> from_file(UniqueFd fd, std::string path);
  static Result<std::shared_ptr<const Image>> from_memory(std::vector<std::byte> bytes, std::string path);

  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  ~Image();

  /// The name under which the target mapped it, for people.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// NT_GNU_BUILD_ID in lower-case hex; empty when the file has none.
  [[nodiscard]] const std::string& build_id() const { return build_id_; }
  [[nodiscard]] std::uint16_t machine() const { return machine_; }  ///< EM_X86_64, EM_AARCH64, ...
  [[nodiscard]] bool is_64bit() const { return is_64bit_; }
  [[nodiscard]] bool position_independent() const { return position_independent_; }  ///< ET_DYN
  [[nodiscard]] const std::vector<Segment>& segments() const { return segments_; }
  /// libelf's handle, owned by the image; not thread safe.
  [[nodiscard]] Elf* elf() const { return elf_; }
  /// Open file of the image, -1 for one that came from memory.
  [[nodiscard]] int fd() const { return fd_.get(); }

  [[nodiscard]] std::optional<std::uint64_t> vaddr_of_offset(std::uint64_t file_offset) const;
  [[nodiscard]] std::optional<std::uint64_t> offset_of_vaddr(std::uint64_t vaddr) const;

 private:
  Image() = default;
  Result<void> load();

  std::string path_;
  std::string build_id_;
  UniqueFd fd_;
  std::vector<std::byte> bytes_;
  Elf* elf_ = nullptr;
  std::uint16_t machine_ = 0;
  bool is_64bit_ = false;
  bool position_independent_ = false;
  std::vector<Segment> segments_;
};

}  // namespace whomap
