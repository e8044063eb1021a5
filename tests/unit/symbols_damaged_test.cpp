// SPDX-License-Identifier: Apache-2.0
// The target's files may be damaged or hostile: whatever their bytes are, reading them must end, and not in a
// crash.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "core/symbols/image_symbols.h"
#include "core/unwind/cfi.h"

// libelf 0.188 forgets some memory when it gives up on a string table or a compressed section.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libelf.so\n";
}

namespace whomap {
namespace {

std::vector<char> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::shared_ptr<const Image> image_of(const std::vector<char>& bytes) {
  UniqueFd fd(::memfd_create("damaged", MFD_CLOEXEC));
  if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) return nullptr;
  auto image = Image::from_file(std::move(fd), "damaged");
  return image ? *image : nullptr;
}

/// Everything that the core asks of a file, at addresses all over its code.
void ask_everything(const std::shared_ptr<const Image>& image) {
  CallFrameInfo cfi(image);
  ImageSymbols symbols(image);
  constexpr int probes = 60;
  for (const Segment& segment : image->segments()) {
    if (!segment.executable) continue;
    for (std::uint64_t i = 0; i < probes; ++i) {
      const std::uint64_t address = segment.vaddr + segment.memory_size / probes * i;
      static_cast<void>(cfi.row_at(address));
      static_cast<void>(symbols.frames(address, false));
      static_cast<void>(symbols.function_entry(address));
    }
  }
}

/// Any small program will do; this one is on every machine. WHOMAP_DAMAGED_FILE names another, for longer
/// runs.
std::string sample() {
  const char* const other = std::getenv("WHOMAP_DAMAGED_FILE");
  return other != nullptr ? other : "/bin/true";
}

TEST(DamagedFiles, OverwrittenBytes) {
  const std::vector<char> whole = bytes_of(sample());
  const char* const rounds = std::getenv("WHOMAP_DAMAGED_ROUNDS");
  std::mt19937 random(20240607);
  for (int round = 0; round < (rounds != nullptr ? std::atoi(rounds) : 40); ++round) {
    std::vector<char> bytes = whole;
    for (int i = 0; i < 1 << (round % 10); ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (const auto image = image_of(bytes)) ask_everything(image);
  }
}

TEST(DamagedFiles, CutShort) {
  const std::vector<char> whole = bytes_of(sample());
  constexpr std::size_t pieces = 24;
  for (std::size_t i = 0; i < pieces; ++i) {
    std::vector<char> bytes(whole.begin(),
                            whole.begin() + static_cast<std::ptrdiff_t>(whole.size() * i / pieces));
    if (const auto image = image_of(bytes)) ask_everything(image);
  }
}

}  // namespace
}  // namespace whomap
