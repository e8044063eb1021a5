// SPDX-License-Identifier: Apache-2.0
// Started programs, the exercise, and the meter, on processes of the test's own.
#include <gtest/gtest.h>

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>

#include "core/verify/exercise.h"
#include "core/verify/held_memory.h"
#include "core/verify/meter.h"
#include "core/verify/process_group.h"
#include "core/verify/process_table.h"

namespace whomap {
namespace {

bool ended(const ChildProcess& child) {
  pollfd waiting{child.pidfd.get(), POLLIN, 0};
  return ::poll(&waiting, 1, 20'000) == 1;
}

TEST(ProcessTable, ReadsTheFieldsBehindAnyName) {
  const auto entry = parse_process_entry(
      "4711 (evil) S 1 (x) R 12 4700 4700 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 812345 1000 200 "
      "18446744073709551615 1 1 0");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->pid, 4711);
  EXPECT_EQ(entry->state, 'R');
  EXPECT_EQ(entry->parent, 12);
  EXPECT_EQ(entry->group, 4700);
  EXPECT_EQ(entry->start_time, 812345U);
  for (const char* damaged : {"", "1", "1 (x", "1 (x)", "1 (x) ", "1 (x) S", "1 (x) S a b", "x (x) S 1 1 1"})
    EXPECT_FALSE(parse_process_entry(damaged)) << damaged;
}

TEST(ProcessTable, DescendantsWithoutABranchAndWithoutCircles) {
  const std::vector<ProcessEntry> table{{2, 'S', 1, 2, 5}, {3, 'S', 2, 2, 5}, {4, 'S', 3, 2, 5},
                                        {5, 'S', 2, 2, 5}, {6, 'S', 5, 2, 5}, {7, 'S', 8, 2, 5},
                                        {8, 'S', 7, 2, 5}, {9, 'S', 1, 2, 5}};
  const auto pids = [&](pid_t root, pid_t without) {
    std::vector<pid_t> result;
    for (const ProcessEntry& each : descendants_of(root, without, table)) result.push_back(each.pid);
    std::sort(result.begin(), result.end());
    return result;
  };
  EXPECT_EQ(pids(2, 0), (std::vector<pid_t>{3, 4, 5, 6}));
  EXPECT_EQ(pids(2, 5), (std::vector<pid_t>{3, 4}));
  EXPECT_EQ(pids(7, 0), (std::vector<pid_t>{8}));
  EXPECT_EQ(pids(9, 0), (std::vector<pid_t>{}));
}

TEST(ProcessGroup, EndsAWholeFamilyAndReapsIt) {
  auto group = ProcessGroup::create();
  ASSERT_TRUE(group);
  const auto child =
      group->start({{"/bin/sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000; sleep 1000"}, {}});
  ASSERT_TRUE(child);
  group->end(0.2);
  EXPECT_TRUE(ended(*child));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(ProcessGroup, AProgramThatCannotRunIsAnError) {
  const auto group = ProcessGroup::create();
  ASSERT_TRUE(group);
  const auto missing = group->start({{"/nonexistent/program"}, {}});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::usage);
  EXPECT_EQ(missing.error().os_error, ENOENT);
}

TEST(ProcessGroup, TheGuardKillsTheFamilyOfAKilledParent) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    auto group = ProcessGroup::create();
    Launch launch{{"/bin/sh", "-c", "sleep 1000; true"}, {}};  // sh stays, with a child of its own
    launch.output = pipe[1];
    const auto child = group->start(launch);
    if (!child) ::_exit(1);
    for (;;) ::pause();
  }
  ::close(pipe[1]);
  // The family holds the pipe: it ends when all of them have.
  std::vector<ProcessEntry> family;
  for (int i = 0; i < 2000 && family.size() < 3; ++i, ::usleep(10'000))
    family = descendants_of(parent, 0, read_process_table());
  EXPECT_EQ(family.size(), 3U);  // guard, sh, sleep
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  pollfd waiting{pipe[0], POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 20'000), 1);
  char byte = 0;
  EXPECT_EQ(::read(pipe[0], &byte, 1), 0);
  ::close(pipe[0]);
}

TEST(Exercise, CountsAndKeepsTheFirstFailuresLastWords) {
  ExerciseRecord record;
  record.command =
      "n=$(cat $COUNT 2>/dev/null); echo x$n > $COUNT; echo run $n; [ \"$n\" = x ] && exit 3; [ \"$n\" != xx "
      "] || kill -9 $$; true";
  const std::string file = testing::TempDir() + "whomap-exercise-" + std::to_string(::getpid());
  auto exercise = Exercise::create(record, {{"COUNT", file}}, 20);
  ASSERT_TRUE(exercise);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(exercise->run({}));
  ::unlink(file.c_str());
  EXPECT_EQ(record.succeeded, 2U);
  EXPECT_EQ(record.failed, 2U);
  EXPECT_EQ(record.first_failure, "exit status 3, \"run x\"");
}

TEST(Exercise, AFloodOfOutputAndAHangAreNoProblem) {
  ExerciseRecord record;
  record.command = "head -c 5000000 /dev/zero; (sleep 1000 &)";
  auto exercise = Exercise::create(record, {}, 20);
  ASSERT_TRUE(exercise);
  ASSERT_TRUE(exercise->run({}));
  EXPECT_EQ(record.succeeded, 1U);
  record.command = "sleep 1000; true";
  auto hanging = Exercise::create(record, {}, 0.1);
  ASSERT_TRUE(hanging);
  ASSERT_TRUE(hanging->run({}));
  EXPECT_EQ(record.timed_out, 1U);
  EXPECT_EQ(record.first_failure, "not done after 0.1 s");
}

TEST(Exercise, AReadableDescriptorGivesARunUp) {
  ExerciseRecord record;
  record.command = "sleep 1000";
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  ASSERT_EQ(::write(pipe[1], "x", 1), 1);
  auto exercise = Exercise::create(record, {}, 20);
  ASSERT_TRUE(exercise);
  const auto result = exercise->run({-1, pipe[0]});
  ASSERT_TRUE(result);
  EXPECT_EQ(*result, Exercise::Ended::given_up);
  EXPECT_EQ(record.succeeded + record.failed, 0U);
}

TEST(Meter, MeasuresAndLearnsOfTheEnd) {
  auto group = ProcessGroup::create();
  const auto child = group->start({{"sleep", "1000"}, {}});
  ASSERT_TRUE(child);
  auto target = Target::open(child->pid);
  ASSERT_TRUE(target);
  Meter meter(std::move(*target), {});
  const auto full = meter.measure(Detail::full);
  ASSERT_TRUE(full);
  EXPECT_TRUE(full->point);
  EXPECT_EQ(full->seconds, 0);
  EXPECT_GT(full->memory.rss.value_or(0), 0U);
  EXPECT_GT(full->memory.mappings.value_or(0), 5U);
  EXPECT_EQ(full->memory.threads, 1U);
  EXPECT_EQ(full->memory.lazy_free, 0U);
  EXPECT_TRUE(full->cpu_seconds);
  // A process that has not left its CPU yet is not accounted for: wait until it sleeps.
  auto light = meter.measure(Detail::light);
  for (int i = 0; i < 2000 && light && light->cpu_seconds.value_or(0) == 0; ++i, ::usleep(10'000))
    light = meter.measure(Detail::light);
  ASSERT_TRUE(light);
  EXPECT_GT(light->cpu_seconds.value_or(0), 0);
  EXPECT_FALSE(light->point);
  EXPECT_GT(light->seconds, 0);
  EXPECT_EQ(light->memory.mappings, std::nullopt);
  ::kill(child->pid, SIGKILL);
  ASSERT_TRUE(ended(*child));
  const auto gone = meter.measure(Detail::light);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::process_ended);
}

TEST(Meter, AnExecIsAnotherProgram) {
  auto group = ProcessGroup::create();
  const std::string go = testing::TempDir() + "whomap-meter-" + std::to_string(::getpid());
  const auto child =
      group->start({{"/bin/sh", "-c", "until [ -e " + go + " ]; do sleep 0.01; done; exec sleep 1000"}, {}});
  ASSERT_TRUE(child);
  auto target = Target::open(child->pid);
  ASSERT_TRUE(target);
  Meter meter(std::move(*target), {});
  ASSERT_TRUE(meter.measure(Detail::light));
  std::ofstream(go) << "go";
  Result<Measurement> at = meter.measure(Detail::light);
  for (int i = 0; i < 2000 && at; ++i, ::usleep(10'000)) at = meter.measure(Detail::light);
  ::unlink(go.c_str());
  ASSERT_FALSE(at);
  EXPECT_EQ(at.error().code, ErrorCode::process_replaced);
}

TEST(Meter, LazyFreeOfSmapsRollup) {
  EXPECT_EQ(parse_lazy_free("1-2 ---p 0 00:00 0 [rollup]\nRss:  9 kB\nLazyFree:      12 kB\nSwap: 0 kB\n"),
            12288U);
  EXPECT_EQ(parse_lazy_free("\nLazyFree:      12 kB"), 12288U);
  EXPECT_EQ(parse_lazy_free("\nLazyFree:      99999999999999999999 kB\n"), std::nullopt);
  EXPECT_EQ(parse_lazy_free("\nLazyFree:\n"), std::nullopt);
  EXPECT_EQ(parse_lazy_free("Rss: 9 kB\n"), std::nullopt);
  EXPECT_EQ(parse_lazy_free(""), std::nullopt);
}

TEST(HeldMemory, ReadsWhatTheKernelWrites) {
  EXPECT_EQ(tmpfs_mounts("22 1 0:21 / /proc rw,relatime shared:5 - proc proc rw\n"
                         "31 22 0:27 / /dev/shm rw,nosuid shared:6 master:2 - tmpfs tmpfs rw,size=1g\n"
                         "40 22 0:30 / /tmp\\040x rw - tmpfs tmpfs rw\n41 22 0:31 / /home rw - ext4 "
                         "/dev/sda1 rw\n-\n\n1 - tmpfs\n"),
            (std::set<std::string>{"1", "31", "40"}));
  const std::string table =
      "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      "
      "atime      "
      "dtime      ctime                   rss                  swap\n"
      "         0          1   600               8388608  4711  4711      0     0     0     0     0          "
      "0         "
      " 0          1               8388608                  4096\n"
      "         0          2   600               8388608  4712  4711      1     0     0     0     0          "
      "0         "
      " 0          1               8388608                     0\nshort line\n";
  EXPECT_EQ(created_segment_bytes(table, 4711), 8392704U);
  EXPECT_EQ(created_segment_bytes(table, 4713), 0U);
  EXPECT_EQ(created_segment_bytes("other header\n1 2\n", 1), std::nullopt);
  EXPECT_EQ(created_segment_bytes("", 1), std::nullopt);
}

TEST(HeldMemory, SeesAMemfdThatIsNotMappedAndEachFileOnce) {
  HeldMemory before;
  before.add(::getpid());
  const int file = ::memfd_create("whomap-test", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  const std::string megabyte(1 << 20, 'x');
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(::write(file, megabyte.data(), megabyte.size()), static_cast<ssize_t>(megabyte.size()));
  const int copy = ::dup(file);
  HeldMemory after;
  after.add(::getpid());
  after.add(::getpid());  // another process of the tree with the same files
  ASSERT_TRUE(before.bytes() && after.bytes());
  EXPECT_EQ(*after.bytes() - *before.bytes(), 3U << 20);
  ::close(copy);
  ::close(file);
}

TEST(Tree, AnOrphanThatWasSeenBeforeStaysInIt) {
  auto group = ProcessGroup::create();
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  adopt_orphans();
  // The middle process waits for a line, ends, and leaves its child to us.
  Launch launch{{"/bin/sh", "-c", "(sleep 1000 & read line < $FIFO) & sleep 1000"}, {}};
  const std::string fifo = testing::TempDir() + "whomap-tree-" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  launch.environment = {{"FIFO", fifo}};
  const auto child = group->start(launch);
  ASSERT_TRUE(child);
  auto target = Target::open(child->pid);
  ASSERT_TRUE(target);
  Meter meter(std::move(*target), {true, ::getpid(), {}});
  const auto processes = [&](std::uint64_t wanted) {
    Result<Measurement> at = meter.measure(Detail::light);
    for (int i = 0; i < 2000 && at && at->processes != wanted; ++i, ::usleep(10'000))
      at = meter.measure(Detail::light);
    return at ? at->processes : 0;
  };
  ASSERT_EQ(processes(4), 4U);  // sh, its subshell, two sleeps
  std::ofstream(fifo) << "go\n";
  EXPECT_EQ(processes(3), 3U);  // the subshell ended; the sleep it had started is still counted
  ::unlink(fifo.c_str());
  group->end(0);
  end_strays();
}

TEST(Tree, AnOrphanOfAStartedProgramIsKnownByItsMark) {
  auto group = ProcessGroup::create();
  adopt_orphans();
  Launch launch{{"/bin/sh", "-c", "(setsid sleep 1000 &) ; exec sleep 1000"}, {}};
  launch.environment = {{"WHOMAP_TEST_TREE", "this"}};
  const auto child = group->start(launch);
  const auto other = group->start({{"/bin/sh", "-c", "(setsid sleep 1000 &) ; exec sleep 1000"}, {}});
  ASSERT_TRUE(child && other);
  auto target = Target::open(child->pid);
  ASSERT_TRUE(target);
  Result<Measurement> at = fail(ErrorCode::usage, "");
  for (int i = 0; i < 2000 && !(at && at->processes == 2); ++i, ::usleep(10'000)) {
    Meter meter(*Target::open(child->pid), {true, ::getpid(), "WHOMAP_TEST_TREE=this"});
    at = meter.measure(Detail::full);
  }
  ASSERT_TRUE(at);
  EXPECT_EQ(at->processes, 2U);
  ASSERT_EQ(at->members.size(), 1U);
  EXPECT_TRUE(has_environment(at->members[0].pid, "WHOMAP_TEST_TREE=this"));
  EXPECT_FALSE(has_environment(at->members[0].pid, "WHOMAP_TEST_TREE=thi"));
  group->end(0);
  end_strays();
}

}  // namespace
}  // namespace whomap
