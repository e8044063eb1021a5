// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer: over the files named, over random inputs, or over damaged copies of
// files.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

/// Random bytes with many of those that matter: opcodes of system calls, jumps and moves into the number
/// register.
std::vector<std::uint8_t> random_input(std::mt19937_64& random) {
  static constexpr std::uint8_t likely[] = {0x0F, 0x05, 0xB8, 0x09, 0x00, 0xE8, 0xE9, 0xEB, 0x74,
                                            0xFF, 0x25, 0x15, 0x48, 0x89, 0xF8, 0xC3, 0x90, 0x01,
                                            0xD4, 0x55, 0x5D, 0x50, 0x58, 0x24, 0x8B, 0x31};
  std::vector<std::uint8_t> input(3 + random() % 512);
  for (std::uint8_t& byte : input)
    byte = random() % 3 == 0 ? static_cast<std::uint8_t>(random()) : likely[random() % std::size(likely)];
  return input;
}

std::vector<std::uint8_t> content_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  return {bytes.begin(), bytes.end()};
}

/// Bytes that mean something in logs.
constexpr std::string_view likely = "0\n\t (){}[]<>\"',:=-+x#|/";

/// A piece of a file with some bytes changed, and pieces cut out, doubled and moved.
std::vector<std::uint8_t> mutated(const std::vector<std::vector<std::uint8_t>>& files,
                                  std::mt19937_64& random) {
  const std::vector<std::uint8_t>& file = files[random() % files.size()];
  if (file.empty()) return {};
  const auto at = [](auto& bytes, std::size_t index) {
    return bytes.begin() + static_cast<std::ptrdiff_t>(index);
  };
  const std::size_t start = random() % 4 == 0 ? random() % file.size() : 0;
  const std::size_t length = std::min<std::size_t>(file.size() - start, 64 + random() % 16384);
  std::vector<std::uint8_t> input(at(file, start), at(file, start + length));
  for (std::uint64_t changes = random() % 12; changes > 0 && !input.empty(); --changes) {
    const std::size_t from = random() % input.size();
    const std::size_t size = std::min<std::size_t>(input.size() - from, 1 + random() % 80);
    const std::vector<std::uint8_t> piece(at(input, from), at(input, from + size));
    switch (random() % 5) {
      case 0: input[from] = static_cast<std::uint8_t>(random()); break;
      case 1: input[from] = static_cast<std::uint8_t>(likely[random() % likely.size()]); break;
      case 2: input.erase(at(input, from), at(input, from + size)); break;
      case 3: input.insert(at(input, random() % (input.size() + 1)), piece.begin(), piece.end()); break;
      default: input.insert(at(input, from), static_cast<std::uint8_t>('0' + random() % 10)); break;
    }
  }
  return input;
}

}  // namespace

int main(int count, char** arguments) {
  if (count >= 3 && std::string_view(arguments[1]) == "--random") {
    std::mt19937_64 random(count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 1);
    for (unsigned long i = std::strtoul(arguments[2], nullptr, 10); i > 0; --i) {
      const auto input = random_input(random);
      LLVMFuzzerTestOneInput(input.data(), input.size());
    }
    return 0;
  }
  if (count >= 5 && std::string_view(arguments[1]) == "--mutate") {
    std::mt19937_64 random(std::strtoull(arguments[3], nullptr, 10));
    std::vector<std::vector<std::uint8_t>> files;
    for (int i = 4; i < count; ++i) files.push_back(content_of(arguments[i]));
    for (unsigned long i = std::strtoul(arguments[2], nullptr, 10); i > 0; --i) {
      const auto input = mutated(files, random);
      LLVMFuzzerTestOneInput(input.data(), input.size());
    }
    return 0;
  }
  for (int i = 1; i < count; ++i) {
    const auto bytes = content_of(arguments[i]);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  return 0;
}
