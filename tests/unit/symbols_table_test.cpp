// SPDX-License-Identifier: Apache-2.0
// Which symbol covers an address: asked of this test program itself, with functions written in assembly code.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <link.h>

#include "core/elf/symbol_table.h"
#include "core/symbols/function_name.h"
#include "core/symbols/symboliser.h"

extern "C" {
extern const char symbol_test_sized[], symbol_test_sizeless[], symbol_test_label[], symbol_test_around[];
}

asm(R"(
  .pushsection .text
  .p2align 4
  .globl symbol_test_sized, symbol_test_sizeless, symbol_test_around, symbol_test_label
  .hidden symbol_test_sized, symbol_test_sizeless, symbol_test_around, symbol_test_label
  .type symbol_test_sized, @function
symbol_test_sized:
  .cfi_startproc
  nop; nop; nop; ret
  .cfi_endproc
  .size symbol_test_sized, 4
  .p2align 4
symbol_test_sizeless:
  .cfi_startproc
  nop; nop; nop; nop; nop; nop; nop; ret
  .cfi_endproc
  .p2align 4
  .cfi_startproc
  nop; nop; nop; ret
  .cfi_endproc
  .p2align 4
  .type symbol_test_around, @function
symbol_test_around:
  .cfi_startproc
  nop
symbol_test_label:
  nop; nop; ret
  .cfi_endproc
  .size symbol_test_around, 4
  .popsection
)");

namespace whomap {
namespace {

std::uint64_t load_bias() {
  std::uint64_t bias = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<std::uint64_t*>(result) = info->dlpi_addr;
        return 1;  // the program itself comes first
      },
      &bias);
  return bias;
}

std::uint64_t link_time(const char* address) {
  return reinterpret_cast<std::uint64_t>(address) - load_bias();
}

std::shared_ptr<const Image> self() {
  auto image = Image::from_file(UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), "self");
  return image ? *image : nullptr;
}

std::string name_at(const SymbolTable& table, std::uint64_t address) {
  const FunctionSymbol* const symbol = table.find(address);
  return symbol == nullptr ? "" : symbol->name;
}

TEST(SymbolTable, ASizeIsCoveredAndNothingElse) {
  const auto image = self();
  ASSERT_TRUE(image);
  const SymbolTable table(*image);
  const std::uint64_t start = link_time(symbol_test_sized);
  EXPECT_EQ(name_at(table, start), "symbol_test_sized");
  EXPECT_EQ(name_at(table, start + 3), "symbol_test_sized");
  EXPECT_EQ(name_at(table, start + 4), "") << "padding";
}

TEST(SymbolTable, WithoutASizeTheFdeIsCovered) {
  const auto image = self();
  ASSERT_TRUE(image);
  const SymbolTable table(*image);
  const std::uint64_t start = link_time(symbol_test_sizeless);
  EXPECT_EQ(name_at(table, start), "symbol_test_sizeless");
  EXPECT_EQ(name_at(table, start + 7), "symbol_test_sizeless");
  EXPECT_EQ(name_at(table, start + 16), "") << "a static function follows, whose name is not in the table";
  EXPECT_EQ(name_at(table, start + 19), "");
}

TEST(SymbolTable, ALabelBelongsToTheFunctionAroundIt) {
  const auto image = self();
  ASSERT_TRUE(image);
  const SymbolTable table(*image);
  EXPECT_EQ(name_at(table, link_time(symbol_test_label)), "symbol_test_around");
  EXPECT_EQ(name_at(table, link_time(symbol_test_label) + 2), "symbol_test_around");
}

TEST(Symboliser, UnknownStaysUnknown) {
  const auto image = self();
  ASSERT_TRUE(image);
  Symboliser symboliser;
  const std::vector<Frame> frames = symboliser.frames(image, link_time(symbol_test_sizeless) + 18, false);
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_FALSE(frames[0].function);
  EXPECT_FALSE(frames[0].line);
  EXPECT_EQ(frames[0].module, "self");
  EXPECT_EQ(frames[0].build_id, image->build_id());
  EXPECT_EQ(frames[0].offset, link_time(symbol_test_sizeless) + 18);
}

TEST(Symboliser, AReturnAddressBelongsToTheCallBeforeIt) {
  const auto image = self();
  ASSERT_TRUE(image);
  Symboliser symboliser;
  const std::uint64_t end = link_time(symbol_test_sized) + 4;
  EXPECT_EQ(symboliser.frames(image, end, false).back().function, "symbol_test_sized");
  EXPECT_EQ(symboliser.frames(image, end, true).back().function, std::nullopt);
}

TEST(Demangled, CppNamesAndNothingElse) {
  EXPECT_EQ(demangled("_ZN5arena4PoolIlLi16EE4growEv"), "arena::Pool<long, 16>::grow()");
  EXPECT_EQ(demangled("main"), "main");
  EXPECT_EQ(demangled("_Z"), "_Z");
  EXPECT_EQ(demangled("_ZnoSuchThing"), "_ZnoSuchThing");
  EXPECT_EQ(demangled("i"), "i") << "not a type's code";
}

}  // namespace
}  // namespace whomap
