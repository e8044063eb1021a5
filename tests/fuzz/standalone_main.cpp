// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target without libFuzzer: over the files named, or over random inputs.
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
  for (int i = 1; i < count; ++i) {
    std::ifstream file(arguments[i], std::ios::binary);
    const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  return 0;
}
