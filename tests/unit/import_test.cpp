// SPDX-License-Identifier: Apache-2.0
// Importers on real logs (tests/data/import/README.md says how they were made) and on damaged ones.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/base/files.h"
#include "core/match/match.h"
#include "core/trace/importers/import.h"
#include "core/trace/reader.h"

namespace whomap {
namespace {

struct Imported {
  ImportSummary summary;
  TraceHeader header;
  TraceEnd end;
  std::map<std::uint32_t, Stack> stacks;
  std::vector<TraceEvent> events;
  std::vector<std::string> notes;
  std::uint64_t lost = 0;

  [[nodiscard]] std::vector<std::string> functions(std::size_t event) const {
    std::vector<std::string> names;
    for (const Frame& frame : stacks.at(events.at(event).stack).frames)
      names.push_back(frame.function.value_or("?"));
    return names;
  }
  [[nodiscard]] bool has_note(std::string_view part) const {
    return std::any_of(notes.begin(), notes.end(),
                       [&](const std::string& note) { return note.find(part) != std::string::npos; });
  }
};

class Import : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "whomap-import-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string fixture(const std::string& name) { return TEST_DATA_DIR "/import/" + name; }

  std::string save(const std::string& text) {
    const std::string path = folder_ + "/log";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  Result<ImportSummary> try_import(LogKind kind, const std::string& path, std::optional<pid_t> pid = {}) {
    ImportOptions options;
    options.kind = kind;
    options.output = trace();
    options.overwrite = true;
    options.pid = pid;
    return import_log(path, options);
  }

  Imported import(LogKind kind, const std::string& path, std::optional<pid_t> pid = {}) {
    Imported result;
    const auto summary = try_import(kind, path, pid);
    EXPECT_TRUE(summary.has_value()) << to_line(summary.error());
    if (!summary) return result;
    result.summary = *summary;
    TraceVisitor visitor;
    visitor.header = [&](const TraceHeader& header) { result.header = header; };
    visitor.stack = [&](Stack stack) { result.stacks[stack.id] = std::move(stack); };
    visitor.event = [&](const TraceEvent& event) { result.events.push_back(event); };
    visitor.note = [&](const std::string& note) { result.notes.push_back(note); };
    visitor.lost = [&](const LostRecord& lost) { result.lost += lost.count; };
    visitor.end = [&](const TraceEnd& end) { result.end = end; };
    const auto read = read_trace(trace(), visitor);
    EXPECT_TRUE(read && !read->cut && read->damaged_lines == 0);
    EXPECT_EQ(result.summary.events, result.events.size());
    EXPECT_EQ(result.end.reason, "imported");
    return result;
  }
  Imported import_text(LogKind kind, const std::string& text, std::optional<pid_t> pid = {}) {
    return import(kind, save(text), pid);
  }
  [[nodiscard]] std::string trace() const { return folder_ + "/out.trace"; }

  std::string folder_;
};

using Names = std::vector<std::string>;

TEST_F(Import, ThePublishedGdbScript) {
  const Imported log = import(LogKind::gdb_log, fixture("gdb_published.log"));
  EXPECT_EQ(log.header.engine, "import:gdb-log");
  EXPECT_EQ(log.header.clock, order_clock);
  ASSERT_EQ(log.events.size(), 60U);
  EXPECT_EQ(log.stacks.size(), 2U);
  EXPECT_EQ(log.summary.unreadable, 0U);
  EXPECT_EQ(log.events[0].call.number, 9);
  EXPECT_EQ(log.events[0].call.result, 0x7f2fdc24f000U);
  EXPECT_EQ(log.events[0].call.arguments[1], 0U) << "the length is not in the log";
  EXPECT_EQ(log.functions(0),
            (Names{"syscall", "from_kernel", "pool_grow", "pool_take", "handle_request", "main"}));
  const Stack& stack = log.stacks.at(0);
  EXPECT_FALSE(stack.truncated);
  EXPECT_TRUE(stack.frames[1].inlined) << "GDB prints no address for pool_grow, into which it was inlined";
  EXPECT_EQ(stack.frames[1].file, "/usr/src/whomap/examples/raw_mmap/pool.c");
  EXPECT_EQ(stack.frames[1].line, 14U);
  EXPECT_EQ(stack.frames[1].offset, stack.frames[2].offset);
  EXPECT_EQ(log.functions(1), (Names{"syscall", "from_kernel", "pool_scratch", "handle_request", "main"}));
  EXPECT_TRUE(log.has_note("taken for mmap"));
}

TEST_F(Import, AGdbLogOfSeveralThreads) {
  const Imported log = import(LogKind::gdb_log, fixture("gdb_threads.log"));
  EXPECT_EQ(log.events.size(), 146U);
  EXPECT_EQ(log.summary.failed_calls, 1U);
  EXPECT_EQ(log.summary.unreadable, 0U);
  std::set<pid_t> threads;
  for (const TraceEvent& event : log.events) threads.insert(event.call.tid);
  EXPECT_EQ(threads, (std::set<pid_t>{6086, 6088, 6089, 6090}));
  EXPECT_EQ(log.functions(0), (Names{"syscall", "take", "pass", "worker", "start_thread", "clone3"}));
  EXPECT_TRUE(log.has_note("may show another call's value"));
}

// The stacks of the published investigation, as they were printed there.
TEST_F(Import, GdbFramesOfStrippedLibraries) {
  const Imported log = import_text(
      LogKind::gdb_log,
      "#0  syscall () at ../sysdeps/unix/sysv/linux/x86_64/syscall.S:38\n"
      "#1  0x00007ffc60f58ac2 in ucm_orig_mmap_syscall () from /.venv/nixl.libs/libucm-e091ff91.so.0.0.0\n"
      "#2  0x00007ffc60fae47c in ?? () from /.venv/nixl.libs/libucs-311e600f.so.0.0.0\n"
      "#3  0x00007ffc60f9b9c4 in ucs_mpool_grow () from /.venv/nixl.libs/libucs-311e600f.so.0.0.0\n"
      "#4  0x00007ffc60f5313b in ucm_munmap () from /.venv/nixl.libs/libucm-e091ff91.so.0.0.0\n"
      "#5  0x0000000000607d15 in _PyThreadState_PopFrame (tstate=0xba6ac8 <_PyRuntime+459656>, "
      "frame=<optimized out>)\n"
      "    at ../Python/pystate.c:2992\n"
      "Syscall returned: rax = 0x7fd8a78ee000\n"
      "#0  0x00007ffff7d9525d in syscall () from /lib/libc.so.6\n"
      "#1  0x0000000000401136 in std::vector<int, std::allocator<int> >::at (this=0x7ff, text=0x1 \"a) b "
      "(c\")\n"
      "    at /usr/include/c++/12/bits/stl vector.h:1160\n"
      "#2  <signal handler called>\n"
      "#3  0x0000000000401200 in operator new(unsigned long) (sz=64) at new.cc:3\n"
      "Backtrace stopped: previous frame inner to this frame (corrupt stack?)\n"
      "Syscall returned: rax = 0xfffffffffffffff4\n"
      "#0  0x00007ffff7d9525d in syscall () from /lib/libc.so.6\n"
      "Syscall returned: rax = 0x000000000000\n"
      "#0  0x00007ffff7d9525d in syscall () from /lib/libc.so.6\n"
      "Syscall returned: rax = 0x7fd8a78ee123\n"
      "Syscall returned: rax = 0x7fd8a78ef000\n"
      "#0  0x00007ffff7d9525d in syscall () from /lib/libc.so.6\n");
  EXPECT_EQ(log.events.size(), 2U);
  EXPECT_EQ(log.summary.mispaired, 2U) << "0 and an address within a page";
  EXPECT_EQ(log.summary.unpaired, 2U) << "a value without a stack, a stack without a value";
  EXPECT_EQ(log.summary.failed_calls, 1U);
  const Stack& first = log.stacks.at(log.events[0].stack);
  ASSERT_EQ(first.frames.size(), 6U);
  EXPECT_FALSE(first.frames[2].function);
  EXPECT_EQ(first.frames[2].module, "/.venv/nixl.libs/libucs-311e600f.so.0.0.0");
  EXPECT_TRUE(first.frames[2].run_time);
  EXPECT_EQ(frame_name(first.frames[2]), "0x7ffc60fae47c in libucs-311e600f.so.0.0.0");
  EXPECT_EQ(first.frames[5].function, "_PyThreadState_PopFrame");
  EXPECT_EQ(first.frames[5].line, 2992U);
  EXPECT_TRUE(first.truncated) << "it does not end in main";
  EXPECT_EQ(log.functions(1), (Names{"syscall", "std::vector<int, std::allocator<int> >::at",
                                     "<signal handler called>", "operator new(unsigned long)"}));
  EXPECT_EQ(log.stacks.at(log.events[1].stack).frames[1].file, "/usr/include/c++/12/bits/stl vector.h");
  EXPECT_EQ(log.stacks.at(log.events[1].stack).truncated,
            "Backtrace stopped: previous frame inner to this frame (corrupt stack?)");
}

TEST_F(Import, TheLogOfOurPlainScript) {
  const Imported log = import_text(LogKind::gdb_log,
                                   "Syscall number 11 thread 1 args 0x7f0000 0x2000 0x0 0x0 0x0 0x0\n"
                                   "#0  0x00007ffff7d9525d in munmap () from /lib/libc.so.6\n"
                                   "#1  0x0000000000401200 in main () at a.c:3\n"
                                   "Syscall returned: rax = 0x000000000000\n"
                                   "Syscall number 11 thread 1 args 0x7f0000 0x2000 0x0 0x0 0x0 0x0\n"
                                   "#0  0x00007ffff7d9525d in munmap () from /lib/libc.so.6\n"
                                   "Syscall returned: rax = 0x7f0000001000\n"
                                   "Syscall number x\n");
  ASSERT_EQ(log.events.size(), 1U);
  EXPECT_EQ(log.events[0].call.number, 11);
  EXPECT_EQ(log.events[0].call.arguments[1], 0x2000U);
  EXPECT_EQ(log.summary.mispaired, 1U) << "munmap returns no address";
  EXPECT_EQ(log.summary.unreadable, 1U);
}

TEST_F(Import, ThePublishedBpftraceScript) {
  const Imported log = import(LogKind::bpftrace, fixture("bpftrace.txt"));
  EXPECT_EQ(log.header.target.pid, 6193);
  EXPECT_EQ(log.events.size(), 41U + 33U + 32U);
  EXPECT_EQ(log.summary.failed_calls, 1U);
  EXPECT_EQ(log.summary.unreadable, 0U);
  const CallEvent& first = log.events[0].call;
  EXPECT_EQ(first.number, 9);
  EXPECT_EQ(first.arguments, (std::array<std::uint64_t, 6>{0, 131072, 3, 34, ~std::uint64_t{0}, 0}));
  EXPECT_EQ(first.result, 0x7fc0944fc000U);
  EXPECT_EQ(first.tid, 6195);
  EXPECT_LT(first.enter_ns, first.exit_ns);
  const CallEvent& second = log.events[1].call;
  EXPECT_EQ(second.number, 25);
  EXPECT_EQ(second.arguments[0], 0x7fc0944fc000U);
  EXPECT_EQ(second.arguments[2], 262144U);
  const Stack& stack = log.stacks.at(log.events[0].stack);
  EXPECT_EQ(stack.frames[0].function, "syscall");
  EXPECT_EQ(stack.frames[0].module, "/usr/lib/x86_64-linux-gnu/libc.so.6");
  EXPECT_TRUE(stack.truncated) << "never a call path: it lacks the callers";
  EXPECT_TRUE(log.stacks.at(log.events[1].stack).frames.empty()) << "the script prints no stack for mremap";
}

// A script of one's own, with %s of ustack rather than of ustack(perf): names without addresses and files.
TEST_F(Import, BpftraceStacksWithoutAddresses) {
  const Imported log = import(LogKind::bpftrace, fixture("bpftrace_ustack.txt"));
  EXPECT_GE(log.summary.events, 6U);
  EXPECT_EQ(log.summary.unreadable, 0U);
  EXPECT_EQ(log.functions(0), Names{"__mmap64"});
  const Imported other = import_text(
      LogKind::bpftrace,
      "Attaching 2 probes...\nStack trace:\n\n        0x7f2d805dd123\n        std::operator+(A, B)+7\n"
      "        add+19\n\nPID/TID: 1 2 | ENTER mmap(addr=(nil), len=4096, prot=3, flags=34, fd=-1, off=0)\n"
      "PID/TID: 1 2 | EXIT mmap: ret=0x7f0000000000\n");
  EXPECT_EQ(other.summary.unreadable, 0U);
  EXPECT_EQ(other.functions(0), (Names{"?", "std::operator+(A, B)", "add"}));
  EXPECT_EQ(other.stacks.begin()->second.frames.at(0).offset, 0x7f2d805dd123U);
}

TEST_F(Import, BpftraceSaysWhatItLost) {
  const Imported log = import(LogKind::bpftrace, fixture("bpftrace_lost.txt"));
  EXPECT_EQ(log.events.size(), 14U);
  EXPECT_EQ(log.lost, 4794U);
  EXPECT_EQ(log.end.lost, 4794U);
  EXPECT_EQ(log.summary.unreadable, 0U);
}

TEST_F(Import, BpftraceLinesOfTwoProcessors) {
  const Imported log =
      import_text(LogKind::bpftrace,
                  "Attaching 6 probes...\nStack trace:\n\n\t7f01 one+1 (/lib/a)\n\nStack trace:\n\n\t7f02 "
                  "two+1 (/lib/a)\n\n"
                  "PID/TID: 1 1 | ENTER mmap(addr=0x0, len=4096, prot=3, flags=34, fd=-1, off=0)\n"
                  "PID/TID: 1 2 | ENTER mmap(addr=0x0, len=4096, prot=3, flags=34, fd=-1, off=0)\n"
                  "PID/TID: 1 1 | EXIT mmap: ret=0x7f0000001000\n"
                  "PID/TID: 1 2 | PID/TID: 1 2 | EXIT mmap: ret=0x7f0000002000\n"
                  "Stack trace:\n\n\t7f03 three+1 (/lib/a)\n\n"
                  "PID/TID: 1 1 | ENTER mmap(addr=0x0, len=4096, prot=3, flags=34, fd=-1, off=0)\n"
                  "PID/TID: 1 1 | EXIT mmap: ret=0x7f0000003000\n");
  ASSERT_EQ(log.events.size(), 2U);
  EXPECT_TRUE(log.stacks.at(log.events[0].stack).frames.empty()) << "one or two: it cannot be told";
  EXPECT_EQ(log.functions(1), (Names{"three"}));
  EXPECT_EQ(log.summary.unpaired, 1U);
  EXPECT_TRUE(log.has_note("two processors"));
}

TEST_F(Import, PerfScript) {
  const Imported log = import(LogKind::perf_script, fixture("perf_script.txt"));
  EXPECT_EQ(log.header.clock, log_clock);
  EXPECT_EQ(log.events.size(), 165U);
  EXPECT_EQ(log.summary.unreadable, 0U);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < log.events.size(); ++i) {
    const CallEvent& call = log.events[i].call;
    EXPECT_LE(call.enter_ns, call.exit_ns);
    if (call.number != 9) continue;
    const Names names = log.functions(i);
    EXPECT_EQ(names[0], "syscall");
    EXPECT_TRUE(names.back() == "clone3" || names.back() == "__clone3" || names.back() == "__GI___clone3")
        << names.back();
    // 128 KiB are passed on, 64 KiB are kept.
    const bool passed = std::find(names.begin(), names.end(), "pass") != names.end();
    EXPECT_EQ(call.arguments[1], passed ? 131072U : 65536U);
    kept += passed ? 0 : 1;
  }
  EXPECT_GT(kept, 10U);
}

TEST_F(Import, PerfScriptWithExitsAlone) {
  const Imported log = import(LogKind::perf_script, fixture("perf_script_exits.txt"));
  EXPECT_EQ(log.events.size(), 60U);
  EXPECT_TRUE(log.has_note("60 calls have no arguments"));
}

TEST_F(Import, PerfScriptInOtherForms) {
  const Imported log = import_text(
      LogKind::perf_script,
      "# a comment of perf script --header\n"
      "my prog 2 77/78 [003] 10.000001000: raw_syscalls:sys_enter: NR 9 (0, 2000, 3, 22, ffffffff, 0)\n"
      "my prog 2 77/78 [003] 10.000002000: raw_syscalls:sys_exit: NR 9 = 139956212490240\n"
      "\tffffffff810 do_syscall_64+0x1 ([kernel.kallsyms])\n\t7f4a18546000 [unknown] (/opt/my lib (1).so)\n\n"
      "my prog 2 77/78 10.000003000: syscalls:sys_enter_read: fd: 0x0\n\t1 f+0x1 (/a)\n\n"
      "other 99/99 10.000004000: syscalls:sys_enter_brk: brk: 0x00000000\n"
      "other 99/99 10.000005000: syscalls:sys_exit_brk: 0x555c98123000\n"
      "my prog 2 77/78 10.000006000: syscalls:sys_exit_munmap: 0x0\n"
      "garbage\n");
  ASSERT_EQ(log.events.size(), 1U);
  EXPECT_EQ(log.summary.mispaired, 0U);
  EXPECT_EQ(log.header.target.pid, 77);
  EXPECT_EQ(log.events[0].call.arguments[1], 0x2000U);
  EXPECT_EQ(log.events[0].call.result, 139956212490240U);
  EXPECT_EQ(log.events[0].call.enter_ns, 10'000'001'000U);
  EXPECT_EQ(log.stacks.at(0).frames[1].module, "/opt/my lib (1).so");
  EXPECT_EQ(log.summary.other_processes, 1U);
  EXPECT_EQ(log.summary.unpaired, 1U) << "an exit whose start is not there";
  EXPECT_EQ(log.summary.unreadable, 1U);
}

TEST_F(Import, StraceWithStacks) {
  const Imported log = import(LogKind::strace, fixture("strace_stacks.txt"));
  EXPECT_EQ(log.header.clock, order_clock);
  ASSERT_EQ(log.events.size(), 63U);
  EXPECT_EQ(log.summary.unreadable, 0U);
  EXPECT_EQ(log.events[0].call.arguments,
            (std::array<std::uint64_t, 6>{0, 131072, 3, 0x22, ~std::uint64_t{0}, 0}));
  EXPECT_EQ(log.events[0].call.result, 0x7fc09753c000U);
  EXPECT_EQ(log.functions(0),
            (Names{"syscall", "take", "pass", "worker", "pthread_condattr_setpshared", "__xmknodat"}));
  const Stack& stack = log.stacks.at(log.events[0].stack);
  EXPECT_EQ(stack.frames[1].module, "/usr/src/app/mt");
  EXPECT_EQ(stack.frames[1].offset, 0x1349U);
  EXPECT_FALSE(stack.frames[1].guessed);
  EXPECT_TRUE(stack.frames[4].guessed) << "start_thread is not exported, and strace names its neighbour";
  // The second is <unfinished ...>, and resumes seven lines further down.
  EXPECT_EQ(log.events[1].call.tid, 6196);
  EXPECT_EQ(log.events[1].call.result, 0x7fc09751c000U);
  EXPECT_LT(log.events[1].call.enter_ns, log.events[1].call.exit_ns);
}

TEST_F(Import, StraceInItsOtherForms) {
  struct Form {
    const char* file;
    std::size_t calls;
    std::uint64_t unpaired;
    bool timed;
  };
  for (const Form& form : {Form{"strace.txt", 62, 1, false}, Form{"strace_times.txt", 42, 0, true},
                           Form{"strace_terminal.txt", 59, 0, true}, Form{"strace_raw.txt", 53, 2, true}}) {
    SCOPED_TRACE(form.file);
    const Imported log = import(LogKind::strace, fixture(form.file));
    EXPECT_EQ(log.events.size(), form.calls);
    EXPECT_EQ(log.summary.unpaired, form.unpaired);
    EXPECT_EQ(log.summary.unreadable, 0U);
    EXPECT_EQ(log.header.clock == log_clock, form.timed);
    EXPECT_EQ(log.events[0].call.arguments[1], 131072U);
    EXPECT_EQ(log.events[0].call.arguments[3], 0x22U);
    if (form.timed) {
      const double seconds = static_cast<double>(log.end.end_ns - log.header.start_ns) / 1e9;
      EXPECT_GT(seconds, 0.001);
      EXPECT_LT(seconds, 1.0);
    }
  }
}

TEST_F(Import, StraceArgumentsAndProcesses) {
  const Imported log = import_text(
      LogKind::strace,
      "strace: Process 10 attached\n"
      "[pid 10] mmap(NULL, 4194304, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS|MAP_HUGETLB|21<<MAP_HUGE_SHIFT, -1, "
      "0) = -1 ENOMEM (Cannot allocate memory)\n"
      "[pid 10] mmap(0x7f0000000000, 8192, PROT_READ, MAP_PRIVATE|MAP_FIXED, 3</tmp/a, b (c).so>, 0x1000) = "
      "0x7f0000000000\n"
      "[pid 10] clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD, child_tidptr=0x7f) = 11\n"
      "[pid 11] mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000100000\n"
      "[pid 10] clone3({flags=CLONE_VM|CLONE_FS|CLONE_THREAD, stack=0x7f}, 88) = 12\n"
      "[pid 12] munmap(0x7f0000000000, 8192) = 0\n"
      "[pid 12] mmap(NULL, 4096 <unfinished ...>\n"
      "[pid 12] +++ exited with 0 +++\n"
      "[pid 10] brk(NULL) = 0x555000\n"
      "[pid 10] shmat(5, NULL, 0) = 0x7f0000200000\n"
      "[pid 10] exit_group(0) = ?\n"
      "total nonsense\n");
  ASSERT_EQ(log.events.size(), 5U);
  EXPECT_EQ(log.events[0].call.result, static_cast<std::uint64_t>(-12));
  EXPECT_EQ(log.events[0].call.arguments[3], 0x40022U | 21ULL << 26);
  EXPECT_EQ(log.events[1].call.arguments[3], 0x12U);
  EXPECT_EQ(log.events[1].call.arguments[5], 0x1000U);
  EXPECT_EQ(log.events[2].call.tid, 12);
  EXPECT_EQ(log.events[4].call.number, 30);
  EXPECT_EQ(log.summary.other_processes, 1U);
  EXPECT_EQ(log.summary.failed_calls, 1U);
  EXPECT_EQ(log.summary.unreadable, 1U);
  EXPECT_EQ(import(LogKind::strace, folder_ + "/log", 11).events.size(), 6U)
      << "the parent's are not told apart by pid";
}

TEST_F(Import, AWrongKindIsNamed) {
  struct Wrong {
    LogKind kind;
    const char* file;
    const char* says;
  };
  for (const Wrong& wrong : {Wrong{LogKind::strace, "gdb_published.log",
                                   "looks like the log of a GDB script; import it with --from gdb-log"},
                             Wrong{LogKind::gdb_log, "strace_stacks.txt", "--from strace"},
                             Wrong{LogKind::bpftrace, "perf_script.txt", "--from perf-script"},
                             Wrong{LogKind::perf_script, "bpftrace.txt", "--from bpftrace"},
                             Wrong{LogKind::perf_script, "pmap_X.txt", "looks like the output of pmap -X"},
                             Wrong{LogKind::strace, "maps.txt", "saved /proc/PID/maps"}}) {
    const auto failed = try_import(wrong.kind, fixture(wrong.file));
    ASSERT_FALSE(failed.has_value()) << wrong.file;
    EXPECT_EQ(failed.error().code, ErrorCode::input_kind);
    EXPECT_NE(to_line(failed.error()).find(wrong.says), std::string::npos) << to_line(failed.error());
    EXPECT_FALSE(std::filesystem::exists(trace())) << "nothing is written";
  }
  const auto prose = try_import(LogKind::strace, save("hello\nworld\n"));
  ASSERT_FALSE(prose.has_value());
  EXPECT_NE(to_line(prose.error()).find("no call that maps memory, and 2 of its 2 lines"), std::string::npos)
      << to_line(prose.error());
  EXPECT_FALSE(try_import(LogKind::strace, save("")).has_value());
  EXPECT_FALSE(try_import(LogKind::strace, folder_ + "/nowhere").has_value());
}

// Growth from a log without lengths: the maps before and after say how long.
TEST_F(Import, GrowthIsMatchedThroughThePublishedLog) {
  std::string text;
  for (const char* address : {"7f0000030000", "7f0000020000", "7f0000010000"})
    text +=
        std::string(
            "#0  0x00007ffff7d9525d in syscall () from /lib/libc.so.6\n#1  0x401200 in leak () at a.c:3\n") +
        "#2  0x401300 in main () at a.c:9\nSyscall returned: rax = 0x" + address + "\n";
  import(LogKind::gdb_log, save(text));
  MatchOptions options;
  options.regions_name = "pmap";
  const std::string old = "7f0000040000-7f0000050000 rw-p 00000000 00:00 0 \n";
  options.regions = {snapshot_from_text(old),
                     snapshot_from_text("7f0000010000-7f0000050000 rw-p 00000000 00:00 0 \n")};
  const auto answer = match_trace(trace(), options);
  ASSERT_TRUE(answer.has_value()) << to_line(answer.error());
  EXPECT_EQ(answer->growth.mapped_bytes, 0x30000U);
  EXPECT_EQ(answer->growth.explained_bytes, 0x30000U);
  EXPECT_EQ(answer->verdict_class, "leak");
  EXPECT_NE(answer->verdict_text.find("leak"), std::string::npos);
  EXPECT_EQ(answer->seconds, 0);
}

}  // namespace
}  // namespace whomap
