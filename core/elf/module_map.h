// SPDX-License-Identifier: Apache-2.0
// Which ELF image is mapped where in the target: the step from a run-time address to module + offset.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/elf/image.h"
#include "core/process/target.h"
#include "core/process/vma.h"

namespace whomap {

/// One image at one load address. run-time address = bias + link-time address (vaddr).
struct Module {
  std::shared_ptr<const Image> image;
  std::string path;  ///< as maps names it, " (deleted)" included
  std::uint64_t bias = 0;
  std::uint64_t inode = 0;
  std::uint64_t device = 0;     ///< major << 32 | minor
  std::vector<Vma> executable;  ///< its executable mappings; hooks split one text into many
};

struct UnreadableModule {
  std::string path;
  std::vector<AddressRange> ranges;
  std::string reason;
};

/// The modules of a process. update() keeps what it knows: a module that was unloaded stays at its
/// index, so that indices in captured stacks stay valid; lookups see only what is mapped now.
class ModuleMap {
 public:
  /// Reads the executable mappings in `vmas`. Files are opened through /proc/PID/map_files, else
  /// /proc/PID/root; a file whose device and inode differ from the mapping's is not used.
  void update(const Target& target, const std::vector<Vma>& vmas);

  /// Index of the module whose executable mapping holds `address`, -1 when there is none.
  [[nodiscard]] int find(std::uint64_t address) const;
  [[nodiscard]] const Module& module(int index) const { return modules_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] const std::vector<Module>& modules() const { return modules_; }
  [[nodiscard]] const std::vector<UnreadableModule>& unreadable() const { return unreadable_; }

 private:
  struct Entry {
    AddressRange range;
    int module;
  };
  std::vector<Module> modules_;
  std::vector<Entry> entries_;  ///< sorted by start; current mappings only
  std::vector<UnreadableModule> unreadable_;
};

}  // namespace whomap
