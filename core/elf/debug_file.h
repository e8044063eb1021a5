// SPDX-License-Identifier: Apache-2.0
// DWARF of an image: its own, or that of its separate debug file under /usr/lib/debug.
#pragma once

#include <memory>
#include <optional>

#include <elfutils/libdw.h>

#include "core/elf/image.h"

namespace whomap {

/// The file /usr/lib/debug/.build-id/xx/yyyy.debug of this build-id, checked to carry that build-id
/// itself; null when there is none. Only this place is looked at: a target's files must not be able to
/// name what whomap parses (no .gnu_debuglink, nothing beside the target's files, no debuginfod).
std::shared_ptr<const Image> separate_debug_file(const Image& image);

/// An open Dwarf handle with the images it reads from.
class DebugInfo {
 public:
  enum class Wanted { debug_info, debug_frame };

  /// The image's own DWARF when it has the wanted section, else its separate debug file's.
  /// nullopt when neither has it, or when it refers to a shared supplementary file (.gnu_debugaltlink,
  /// made by dwz) that is not under /usr/lib/debug with the right build-id: names would be missing.
  static std::optional<DebugInfo> open(const std::shared_ptr<const Image>& image, Wanted wanted);

  [[nodiscard]] Dwarf* dwarf() const { return dwarf_.get(); }
  /// Whose DWARF it is: the image or the separate file.
  [[nodiscard]] const Image& source() const { return *source_; }

 private:
  struct End {
    void operator()(Dwarf* dwarf) const { dwarf_end(dwarf); }
  };
  using Handle = std::unique_ptr<Dwarf, End>;

  DebugInfo() = default;
  static std::optional<DebugInfo> open_in(std::shared_ptr<const Image> source, Wanted wanted);
  bool open_supplementary();

  // The order matters: a Dwarf must end before the ELF handle under it and before its supplementary.
  std::shared_ptr<const Image> source_;
  std::shared_ptr<const Image> supplementary_source_;
  Handle supplementary_;
  Handle dwarf_;
};

}  // namespace whomap
