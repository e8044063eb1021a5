// SPDX-License-Identifier: Apache-2.0
// whomap's stacks must be GDB's: same frames, functions, files, lines and inlined calls. Where GDB has none
// to offer, the stack must be whole or say why it is not.
#include <elf.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/symbols/symboliser.h"
#include "gdb_backtrace.h"

namespace whomap::test {
namespace {

bool has_program(const std::string& name) {
  return std::system(("command -v " + name + " >/dev/null 2>&1").c_str()) == 0;
}

std::string target(const std::string& name) {
  return std::string(TARGETS "/") + name;
}

void expect_equal(const Comparison& comparison) {
  EXPECT_TRUE(comparison.differences.empty())
      << ::testing::PrintToString(comparison.differences) << "\nwhomap:\n"
      << to_text(comparison.ours) << "\nGDB:\n"
      << to_text(comparison.theirs);
  EXPECT_EQ(comparison.truncated, "");
  EXPECT_FALSE(comparison.guessed);
  EXPECT_GT(comparison.theirs.size(), 2U) << "GDB gave no stack";
}

bool has_function(const Comparison& comparison, const std::string& name) {
  return std::any_of(comparison.ours.begin(), comparison.ours.end(),
                     [&](const GdbFrame& frame) { return frame.name == name; });
}

struct Case {
  std::string name;
  std::vector<std::string> command;
  std::string function;  ///< must be on the stack; an empty one need not
};

void PrintTo(const Case& value, std::ostream* out) {
  *out << value.name;
}

class Yardstick : public ::testing::TestWithParam<Case> {};

TEST_P(Yardstick, EqualsGdb) {
  if (!has_program("gdb")) GTEST_SKIP() << "needs gdb";
  if (!has_program(GetParam().command[0])) GTEST_SKIP() << "needs " << GetParam().command[0];
  const BlockedChild child(GetParam().command);
  ASSERT_EQ(child.line(), "blocked");
  const Comparison comparison = compare_with_gdb(child.pid(), child.pid(), look_at(child.pid()));
  expect_equal(comparison);
  EXPECT_TRUE(GetParam().function.empty() || has_function(comparison, GetParam().function));
}

INSTANTIATE_TEST_SUITE_P(
    Targets, Yardstick,
    ::testing::Values(
        Case{"Deep", {target("c_frames"), "deep", "1000"}, "inlined_block"},
        Case{"Alloca", {target("c_frames"), "alloca"}, "with_alloca"},
        Case{"Vla", {target("c_frames"), "vla"}, "with_vla"},
        Case{"Alignment", {target("c_frames"), "align"}, "with_alignment"},
        Case{"Signal", {target("c_frames"), "signal"}, "interrupted"},
        Case{"FaultAtFirstInstruction", {target("c_frames"), "fault"}, "faults"},
        Case{"Unoptimised", {target("c_frames_unoptimised"), "signal"}, "on_signal"},
        Case{"Static", {target("c_frames_static"), "signal"}, "interrupted"},
        Case{"StaticWithoutIndex", {target("c_frames_static_no_index"), "signal"}, "interrupted"},
        Case{"DebugFrameOnly", {target("c_frames_debug_frame"), "alloca"}, "with_alloca"},
        Case{"TailCalls", {target("tail_calls")}, "one_way"},
        Case{"AmbiguousTailCalls", {target("tail_calls"), "ambiguous"}, "two_ways"},
        Case{"Cpp", {target("cpp_frames")}, "arena::Pool<long, 16>::grow"},
        Case{"CppWithoutDebugInfo", {target("cpp_frames_no_debug")}, "arena::Pool<long, 16>::grow"},
        Case{"DebianPython", {"/usr/bin/python3", TARGET_SOURCES "/python_frames.py"}, ""},
        Case{"PathPython", {"python3", TARGET_SOURCES "/python_frames.py"}, ""}),
    [](const auto& parameter) { return parameter.param.name; });

TEST(YardstickThread, EqualsGdb) {
  if (!has_program("gdb")) GTEST_SKIP() << "needs gdb";
  const BlockedChild child({target("c_frames"), "thread"});
  ASSERT_EQ(child.line(), "blocked");
  pid_t thread = 0;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(child.pid()) + "/task"))
    thread = std::max(thread, std::stoi(task.path().filename()));
  ASSERT_NE(thread, child.pid());
  expect_equal(compare_with_gdb(child.pid(), thread, look_at(thread)));
}

// Debian's UCX hooks mmap by overwriting libc's code; its libraries are stripped and have no frame pointers.
TEST(YardstickUcx, EqualsGdbUnderTheHooks) {
  if (!has_program("gdb")) GTEST_SKIP() << "needs gdb";
  if (!std::filesystem::exists(target("ucx_frames")))
    GTEST_SKIP() << "needs libucx-dev when whomap is configured";
  const BlockedChild child({target("ucx_frames")}, {"UCX_MEM_MMAP_HOOK_MODE=bistro"});
  ASSERT_EQ(child.line(), "blocked");
  constexpr long mmap_number = 9;
  child.release();
  const StoppedThread thread = look_at_return(child.pid(), mmap_number);
  const Comparison comparison = compare_with_gdb(child.pid(), child.pid(), thread);
  expect_equal(comparison);
  for (const char* const name :
       {"ucm_orig_mmap_syscall", "ucm_event_dispatch", "ucm_mmap", "map_memory", "main"})
    EXPECT_TRUE(has_function(comparison, name)) << name << "\n" << to_text(comparison.ours);
  EXPECT_TRUE(has_function(comparison, "")) << "ucm's static function has no name in the file";
}

TEST(AlternateStack, TheInterruptedStackIsNamedAsTheReason) {
  const BlockedChild child({target("c_frames"), "altstack"});
  ASSERT_EQ(child.line(), "blocked");
  const Code code = code_of(child.pid());
  const StoppedThread thread = look_at(child.pid());
  const UnwoundStack stack = Unwinder(code.modules).unwind(thread.registers, thread.stack);
  EXPECT_GE(stack.frames.size(), 4U);
  EXPECT_NE(stack.truncated.find("outside the copy"), std::string::npos) << stack.truncated;
}

UnwoundStack unwind_blocked(const std::string& program, const std::string& kind, std::size_t most = 1 << 20) {
  const BlockedChild child({program, kind});
  if (child.line() != "blocked") return {};
  const Code code = code_of(child.pid());
  const StoppedThread thread = look_at(child.pid(), most);
  Unwinder unwinder(code.modules);
  unwinder.set_other_code(code.other);
  return unwinder.unwind(thread.registers, thread.stack);
}

TEST(CutCopy, SaysWhereItEnds) {
  const UnwoundStack whole = unwind_blocked(target("c_frames"), "deep");
  const UnwoundStack cut = unwind_blocked(target("c_frames"), "deep", 1024);
  EXPECT_EQ(whole.truncated, "");
  EXPECT_LT(cut.frames.size(), whole.frames.size());
  EXPECT_EQ(cut.truncated.rfind("copy ended at 0x", 0), 0U) << cut.truncated;
}

TEST(NoSectionHeaders, AreNotNeeded) {
  const std::string stripped = target("c_frames") + "_no_sections";
  std::filesystem::copy_file(target("c_frames"), stripped, std::filesystem::copy_options::overwrite_existing);
  {
    std::fstream file(stripped, std::ios::in | std::ios::out | std::ios::binary);
    Elf64_Ehdr header;
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    header.e_shoff = 0;
    header.e_shnum = 0;
    header.e_shstrndx = 0;
    file.seekp(0);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
  }
  const UnwoundStack with = unwind_blocked(target("c_frames"), "signal");
  const UnwoundStack without = unwind_blocked(stripped, "signal");
  EXPECT_EQ(without.truncated, "");
  ASSERT_EQ(without.frames.size(), with.frames.size());
  for (std::size_t i = 0; i < with.frames.size(); ++i)
    EXPECT_EQ(without.frames[i].offset, with.frames[i].offset) << "frame " << i;
  std::filesystem::remove(stripped);
}

TEST(FramePointers, LeadThroughCodeWithoutUnwindInfoAndAreMarkedGuessed) {
  const BlockedChild child({target("c_frames_frame_pointer"), "alloca"});
  ASSERT_EQ(child.line(), "blocked");
  const Comparison comparison = compare_with_gdb(child.pid(), child.pid(), look_at(child.pid()));
  EXPECT_TRUE(comparison.guessed);
  EXPECT_TRUE(has_function(comparison, "with_alloca")) << to_text(comparison.ours);
  EXPECT_TRUE(has_function(comparison, "main")) << to_text(comparison.ours);
  EXPECT_TRUE(comparison.differences.empty()) << ::testing::PrintToString(comparison.differences);
}

/// The functions of a blocked thread, innermost first, without inlined ones.
std::vector<std::string> functions_of(const std::vector<std::string>& command, UnwoundStack& stack) {
  const BlockedChild child(command);
  if (child.line() != "blocked") return {};
  const Code code = code_of(child.pid());
  const StoppedThread thread = look_at(child.pid());
  Unwinder unwinder(code.modules);
  unwinder.set_other_code(code.other);
  stack = unwinder.unwind(thread.registers, thread.stack);
  std::vector<std::string> names;
  Symboliser symboliser;
  for (const Frame& frame : symboliser.frames(stack, code.modules))
    if (!frame.inlined) names.push_back(without_parameters(frame.function.value_or("")));
  return names;
}

TEST(Musl, CallersAreFoundByTheirCallsAndMarkedGuessed) {
  const std::string program = target("c_frames_musl");
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "needs musl-gcc when whomap is configured";
  UnwoundStack stack;
  const std::vector<std::string> names = functions_of({program, "signal"}, stack);
  const std::vector<std::string> expected{"__syscall_cp_c", "read",  "block",       "__restore_rt",
                                          "__restore_sigs", "raise", "interrupted", "main"};
  ASSERT_GE(names.size(), expected.size()) << stack.truncated;
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(names[i].rfind(expected[i], 0), 0U) << names[i];
  EXPECT_FALSE(stack.frames[0].guessed);
  EXPECT_TRUE(stack.frames[1].guessed);
  EXPECT_EQ(stack.truncated.rfind("no unwind info at c_frames_musl+0x", 0), 0U) << stack.truncated;
}

TEST(Jit, FramePointersLeadThroughToTheOutermostFrame) {
  if (!has_program("node")) GTEST_SKIP() << "needs node";
  UnwoundStack stack;
  const std::vector<std::string> names = functions_of({"node", TARGET_SOURCES "/node_frames.js"}, stack);
  EXPECT_EQ(stack.truncated, "");
  EXPECT_TRUE(
      std::any_of(stack.frames.begin(), stack.frames.end(), [](const auto& frame) { return frame.guessed; }));
  for (const char* const name : {"node::Start", "_start"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
}

}  // namespace
}  // namespace whomap::test
