// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "core/capture/code_guard.h"
#include "core/process/permission.h"
#include "core/process/proc_error.h"
#include "core/process/target.h"
#include "core/process/vma.h"

namespace whomap {
namespace {

Vma only(std::string_view line) {
  const VmaList list = parse_maps(line);
  EXPECT_TRUE(list.unparsed.empty()) << line;
  EXPECT_EQ(list.vmas.size(), 1U) << line;
  return list.vmas.empty() ? Vma{} : list.vmas.front();
}

TEST(Maps, FieldsOfAnOrdinaryLine) {
  const Vma vma = only("7f1c2e600000-7f1c2e755000 r-xp 00026000 fe:01 1835 /usr/lib/libc.so.6\n");
  EXPECT_EQ(vma.start, 0x7f1c2e600000U);
  EXPECT_EQ(vma.end, 0x7f1c2e755000U);
  EXPECT_TRUE(vma.readable && !vma.writable && vma.executable && !vma.shared);
  EXPECT_EQ(vma.offset, 0x26000U);
  EXPECT_EQ(vma.device_major, 0xfeU);
  EXPECT_EQ(vma.device_minor, 1U);
  EXPECT_EQ(vma.inode, 1835U);
  EXPECT_EQ(vma.name, "/usr/lib/libc.so.6");
}

TEST(Maps, HostileNamesStayExact) {
  const std::string prefix = "00400000-00401000 rw-s 00000000 00:01 99999999999999 ";
  for (const std::string name :
       {"/a path/with  two spaces", "/new\\012line", "/x (deleted)", "/x (deleted) (deleted)",
        "[anon:name with spaces]", "[anon: glibc: malloc arena]", "[stack:123]", "/trailing "}) {
    const Vma vma = only(prefix + "   " + name + "\n");
    EXPECT_EQ(vma.name, name);
    EXPECT_EQ(vma.inode, 99999999999999U);
    EXPECT_TRUE(vma.shared);
  }
  const std::string longest = "/" + std::string(4095, 'a');
  EXPECT_EQ(only(prefix + longest + "\n").name, longest);
}

TEST(Maps, EmptyNameWithAndWithoutTrailingSpaces) {
  EXPECT_EQ(only("00400000-00401000 rw-p 00000000 00:00 0\n").name, "");
  EXPECT_EQ(only("00400000-00401000 rw-p 00000000 00:00 0          \n").name, "");
}

TEST(Maps, TheVsyscallPageHasTheHighestAddresses) {
  EXPECT_EQ(only("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n").start,
            0xffffffffff600000U);
}

TEST(Maps, ALineWithoutNewlineIsReadAndAHalfLineIsKeptAsUnparsed) {
  EXPECT_EQ(only("00400000-00401000 rw-p 00000000 00:00 0 [heap]").name, "[heap]");
  const VmaList cut = parse_maps("00400000-00401000 rw-p 00000000 00:00 0 [heap]\n00500000-0060");
  EXPECT_EQ(cut.vmas.size(), 1U);
  ASSERT_EQ(cut.unparsed.size(), 1U);
  EXPECT_EQ(cut.unparsed.front(), "00500000-0060");
}

TEST(Maps, NothingThatDoesNotParseDisappears) {
  for (const std::string line : {"", "garbage", "00400000-00400000 rw-p 0 0:0 0",
                                 "00400000-00401000 rwzp 0 0:0 0", "00400000-00401000 rw-p 0 0:0 x",
                                 "00400000-00401000 rw-p 0 0:0 0[heap]", "fffffffffffffffff-1 rw-p 0 0:0 0"})
    EXPECT_EQ(parse_maps(line + "\n").unparsed, std::vector<std::string>{line});
}

TEST(Maps, FindsTheVmaOfAnAddress) {
  const auto list = parse_maps("1000-2000 r--p 0 0:0 0\n3000-5000 r--p 0 0:0 0\n").vmas;
  EXPECT_EQ(find_vma(list, 0xfff), nullptr);
  EXPECT_EQ(find_vma(list, 0x1000), &list[0]);
  EXPECT_EQ(find_vma(list, 0x2000), nullptr);
  EXPECT_EQ(find_vma(list, 0x4fff), &list[1]);
  EXPECT_EQ(find_vma(list, 0x5000), nullptr);
}

TEST(ProcFiles, NoPieceIsReadAfterTheDeadline) {
  std::string text;
  const auto add = [&](std::string_view piece) { text.append(piece); };
  const auto late = read_proc_pieces(::getpid(), "maps", add, 1);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::input_unreadable);
  EXPECT_NE(late.error().happened.find("in time"), std::string::npos);
  EXPECT_TRUE(text.empty());
  EXPECT_TRUE(read_proc_pieces(::getpid(), "maps", add, ~std::uint64_t{0}));
  EXPECT_NE(text.find("[stack]"), std::string::npos);
}

TEST(Maps, OwnMapsParseCompletely) {
  const auto list = read_maps(::getpid());
  ASSERT_TRUE(list);
  EXPECT_TRUE(list->unparsed.empty());
  const int on_stack = 0;
  const Vma* stack = find_vma(list->vmas, reinterpret_cast<std::uint64_t>(&on_stack));
  ASSERT_NE(stack, nullptr);
}

TEST(Stat, TheNameMayHoldParenthesesAndSpaces) {
  std::string stat = "77 (evil) S 1 (x) R";
  for (int field = 4; field <= 21; ++field) stat += " 1";
  stat += " 424242 0 0\n";
  const auto start = parse_start_time(stat);
  ASSERT_TRUE(start);
  EXPECT_EQ(*start, 424242U);
  EXPECT_FALSE(parse_start_time("77 (no end"));
  EXPECT_FALSE(parse_start_time("77 (short) S 1 2"));
}

TEST(Status, SizesAreBytesAndAbsentIsUnknown) {
  const ProcessStatus status = parse_status(
      "Name:\tpy\\thon\nState:\tt (tracing stop)\nTgid:\t7\nTracerPid:\t9\nUid:\t1000\t1001\t1000\t1000\n"
      "RssAnon:\t    12 kB\nThreads:\t3\nCapEff:\t0000000000080000\nNewField:\tx y\n");
  EXPECT_EQ(status.state, 't');
  EXPECT_EQ(status.tracer_pid, 9);
  EXPECT_EQ(status.real_uid, 1000U);
  EXPECT_EQ(status.effective_uid, 1001U);
  EXPECT_EQ(status.rss_anon, 12U * 1024);
  EXPECT_EQ(status.rss_file, std::nullopt);
  EXPECT_EQ(status.effective_capabilities, std::uint64_t{1} << 19);
  EXPECT_EQ(status.fields.at("NewField"), "x y");
}

AccessFacts granted() {
  AccessFacts facts;
  facts.target = parse_status(
      "Name:\tserver\nState:\tS\nTgid:\t7\nTracerPid:\t0\nUid:\t1000\t1000\nCapEff:\t0\nVmSize:\t9 kB\n");
  facts.own_uid = 1000;
  facts.attach_access = true;
  return facts;
}

TEST(Permission, EachReasonHasItsOwnCode) {
  EXPECT_FALSE(attach_obstacle(granted()));
  const auto code_of = [](auto change) {
    AccessFacts facts = granted();
    facts.attach_access = false;
    change(facts);
    const auto obstacle = attach_obstacle(facts);
    EXPECT_TRUE(obstacle && !obstacle->remedy.empty());
    return obstacle ? obstacle->code : ErrorCode::usage;
  };
  EXPECT_EQ(code_of([](AccessFacts& f) { f.target.state = 'Z'; }), ErrorCode::process_zombie);
  EXPECT_EQ(code_of([](AccessFacts& f) { f.target.state = 'T'; }), ErrorCode::process_stopped);
  EXPECT_EQ(code_of([](AccessFacts& f) { f.target.tracer_pid = 9; }), ErrorCode::already_traced);
  EXPECT_EQ(code_of([](AccessFacts& f) { f.own_uid = 1; }), ErrorCode::other_user);
  EXPECT_EQ(code_of([](AccessFacts& f) { f.yama_scope = 1; }), ErrorCode::yama);
  EXPECT_EQ(code_of([](AccessFacts& f) { f.yama_scope = 2; }), ErrorCode::yama);
  EXPECT_EQ(code_of([](AccessFacts& f) { f.yama_scope = 3; }), ErrorCode::yama);
  EXPECT_EQ(code_of([](AccessFacts& f) { f.dumpable = false; }), ErrorCode::missing_capability);
  EXPECT_EQ(code_of([](AccessFacts& f) { f.target.effective_capabilities = 1; }),
            ErrorCode::missing_capability);
  EXPECT_EQ(code_of([](AccessFacts&) {}), ErrorCode::not_permitted);
  EXPECT_EQ(code_of([](AccessFacts& f) { f.target.fields.erase("VmSize"); }), ErrorCode::process_ended);
}

TEST(Permission, TheTracerIsNamed) {
  AccessFacts facts = granted();
  facts.target.tracer_pid = 99;
  facts.tracer_name = "strace";
  const std::string line = to_line(*attach_obstacle(facts));
  EXPECT_NE(line.find("strace (pid 99)"), std::string::npos) << line;
}

TEST(Target, RefusesItself) {
  const auto own = Target::open(::getpid());
  ASSERT_FALSE(own);
  EXPECT_EQ(own.error().code, ErrorCode::own_process);
}

TEST(Target, SeesTheEndOfAProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto target = Target::open(child);
  ASSERT_TRUE(target) << to_line(target.error());
  EXPECT_TRUE(target->check());
  ::kill(child, SIGKILL);
  siginfo_t info;
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  ASSERT_FALSE(target->check());
  EXPECT_EQ(target->check().error().code, ErrorCode::process_ended);
  const auto zombie = Target::open(child);
  ASSERT_FALSE(zombie);
  EXPECT_EQ(zombie.error().code, ErrorCode::process_zombie);
  ::waitpid(child, nullptr, 0);
}

TEST(ErrorLine, NamesFromATargetCannotBreakTheLine) {
  const Error error{ErrorCode::usage, "bad \n\x1b[31m name \xff \xc3\xa4", "do this"};
  EXPECT_EQ(to_line(error), "bad \\x0a\\x1b[31m name \\xff \xc3\xa4; do this");
}

/// No descriptor can be opened while this lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::open("/dev/null", O_RDONLY);  // the lowest number that is free
    ::close(next);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(TargetCheck, WithoutDescriptorsNothingIsSaidOfTheProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const auto target = Target::open(child);
  ASSERT_TRUE(target) << to_line(target.error());
  {
    const NoDescriptors limit;
    for (const auto& error : {target->check().error(), Target::open(::getppid()).error()}) {
      EXPECT_EQ(error.code, ErrorCode::kernel_feature);
      EXPECT_EQ(to_line(error).find("too many open files"), 0U) << to_line(error);
      EXPECT_NE(to_line(error).find("ulimit -n"), std::string::npos) << to_line(error);
    }
  }
  EXPECT_TRUE(target->check());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(target->check().error().code, ErrorCode::process_ended);
  // Its memory cannot be opened, which is nobody's prohibition.
  EXPECT_EQ(CodeGuard::record(*target, Plan{}).error().code, ErrorCode::process_ended);
}

}  // namespace
}  // namespace whomap
