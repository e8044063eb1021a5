# SPDX-License-Identifier: Apache-2.0
"""whomap watch on real processes: growth, classes, the file, the ends of a watch, and the terminal."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time

import pytest

from support import EXAMPLES, WHOMAP, PATIENCE, is_running, run, status_field, wait_until

# Maps and touches 256 KiB every 50 ms, as many times as it is told; then sleeps. On a line at its standard
# input it does what argv[2] says.
GROWER = r"""
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int count, char **arguments) {
  long times = atol(arguments[1]);
  puts("ready"); fflush(stdout);
  struct pollfd input = {0, POLLIN, 0};
  for (;;) {
    if (times-- > 0)
      memset(mmap(NULL, 262144, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 262144);
    if (poll(&input, 1, 50) == 1) break;
  }
  if (count > 2 && !strcmp(arguments[2], "exec")) execl("/bin/sleep", "sleep", "100", (char *)NULL);
  return 3;
}
"""

# One region of every class that can be made here; prints "CLASS ADDRESS WORD", where WORD is in the evidence or the
# traits, then "ready".
ZOO = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <unistd.h>
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif
static pthread_barrier_t started;
static void *stack_of_exited;
static void show(const char *kind, void *at, const char *word) { printf("%s %p %s\n", kind, at, word); }
/* Everything lies in one shared mapping of nothing, apart from each other: where the kernel chooses the place it
   merges neighbours that are alike, stacks and arenas too, and one region has one class. */
static char *room, *next;
static void make_room(void) {
  const size_t size = 256 << 20, step = 2 << 20;
  room = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) { perror("mmap"); exit(1); }
  next = (char *)(((unsigned long)room + step - 1) & ~(step - 1));
}
static void *place(size_t size) {
  char *at = next + (2 << 20);
  next = at + ((size + (2 << 20) - 1) & ~((2UL << 20) - 1));
  return at;
}
static void *map(size_t size, int protection, int flags, int fd) {
  void *at = mmap(place(size), size, protection, flags | MAP_FIXED, fd, 0);
  if (at == MAP_FAILED) { perror("mmap"); exit(1); }
  if (protection & PROT_WRITE) memset(at, 1, size);
  return at;
}
/* 1 MiB without reserved swap between two pages of another kind. */
static void *apart(int protection) {
  char *fence = mmap(NULL, (1 << 20) + 8192, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  void *at = mmap(fence + 4096, 1 << 20, protection, flags, -1, 0);
  if (at != fence + 4096) { perror("mmap"); exit(1); }
  if (protection & PROT_WRITE) memset(at, 1, 1 << 20);
  return at;
}
static void *live(void *unused) {
  char on_stack;
  show("thread-stack", &on_stack, "pointer");
  void *arena = malloc(100000);
  memset(arena, 1, 100000);
  show("glibc-arena", arena, "MiB");
  pthread_barrier_wait(&started);
  for (;;) pause();
  return unused;
}
static int status_threads(void) {
  char line[256];
  int threads = 0;
  FILE *status = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, status)) sscanf(line, "Threads: %d", &threads);
  fclose(status);
  return threads;
}
static void *gone(void *unused) { char on_stack; stack_of_exited = &on_stack; return unused; }
int main(int count, char **arguments) {
  const int rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
  char on_stack;
  pthread_t thread;
  make_room();
  pthread_barrier_init(&started, NULL, 2);
  pthread_create(&thread, NULL, live, NULL);
  pthread_barrier_wait(&started);
  pthread_create(&thread, NULL, gone, NULL);
  pthread_join(thread, NULL);
  pthread_create(&thread, NULL, gone, NULL);  /* never joined; in the stack of the one before, which glibc kept */
  while (stack_of_exited == NULL || status_threads() != 2) usleep(1000);
  show("exited-thread-stack", stack_of_exited, "guard");
  show("stack", &on_stack, "[stack]");
  void *heap = malloc(1000);
  show("heap", heap, "[heap]");
  show("anonymous", map(1 << 20, rw, anonymous, -1), "file");
  show("jit", map(65536, rw | PROT_EXEC, anonymous, -1), "executable");
  // Like the parts of an arena, with which the kernel would merge them: not beside one.
  show("reservation", apart(PROT_NONE), "PROT_NONE");
  show("anonymous", apart(rw), "NORESERVE");
  show("grows-down", map(1 << 16, rw, anonymous | MAP_GROWSDOWN, -1), "GROWSDOWN");
  int file = open(arguments[1], O_RDWR);
  show("file", map(4096, PROT_READ, MAP_PRIVATE, file), "private");
  show("file", map(4096, PROT_READ, MAP_SHARED, file), "shared");
  int memory = memfd_create("zoo", 0);
  if (ftruncate(memory, 65536)) return 1;
  show("memfd", map(65536, rw, MAP_SHARED, memory), "memfd");
  show("memfd", map(65536, rw, MAP_SHARED, memory), "memfd");
  char name[64];
  snprintf(name, sizeof name, "/whomap-zoo-%d", getpid());
  int posix = shm_open(name, O_CREAT | O_RDWR, 0600);
  if (posix < 0 || ftruncate(posix, 65536)) return 1;
  show("shared-memory", map(65536, rw, MAP_SHARED, posix), "POSIX");
  shm_unlink(name);
  int segment = shmget(IPC_PRIVATE, 65536, IPC_CREAT | 0600);
  void *attached = shmat(segment, place(65536), SHM_REMAP);
  shmctl(segment, IPC_RMID, NULL);
  show("shared-memory", attached, "System");
  show("shared-memory", map(65536, rw, MAP_SHARED | MAP_ANONYMOUS, -1), "/dev/zero");
  char *lazy = map(1 << 20, rw, anonymous, -1);
  if (madvise(lazy, 1 << 20, MADV_FREE) == 0) show("anonymous", lazy, "LazyFree");
  char *huge = map(4 << 20, PROT_READ, anonymous, -1);  /* at a multiple of 2 MiB, as all here */
  mprotect(huge, 4 << 20, rw);
  if (madvise(huge, 4 << 20, MADV_HUGEPAGE) == 0) { memset(huge, 1, 4 << 20); show("huge", huge, "AnonHugePages"); }
  void *hugetlb = mmap(place(2 << 20), 2 << 20, rw, anonymous | MAP_HUGETLB | MAP_FIXED, -1, 0);
  if (hugetlb != MAP_FAILED) { *(char *)hugetlb = 1; show("huge-pages", hugetlb, "hugetlb"); }
  char gone_file[4200];
  snprintf(gone_file, sizeof gone_file, "%s.gone", arguments[1]);
  int deleted = open(gone_file, O_RDWR | O_CREAT, 0600);
  if (ftruncate(deleted, 4096)) return 1;
  show("file", map(4096, PROT_READ, MAP_PRIVATE, deleted), "deleted");
  unlink(gone_file);
  void *named = map(65536, rw, anonymous, -1);
  if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, named, 65536, "zoo name") == 0) show("named", named, "zoo");
  puts("ready"); fflush(stdout);
  for (;;) pause();
}
"""


@pytest.fixture
def grower(targets, compile_c):
    program = compile_c(GROWER, name="grower")
    return lambda times=100000, *more: targets.start(program, times, *more)


def records_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def end_of(result):
    record = json.loads(result.stdout.splitlines()[-1])
    assert record["type"] == "end"
    return record


def test_names_the_region_that_grows(grower, tmp_path):
    process = grower()
    out = tmp_path / "w.jsonl"
    result = run("watch", "-p", process.pid, "-d", 4, "-i", 0.2, "-o", out)
    assert result.returncode == 0, result.stderr
    assert re.search(r"RssAnon \+\d+(\.\d)? MiB/min, .* of the growth in 1 region", result.stdout), result.stdout
    assert "mmap, merged by the kernel" in result.stdout
    assert out.name in result.stderr and "--regions" in result.stderr
    assert os.stat(out).st_mode & 0o777 == 0o600
    records = records_of(out)
    assert records[0]["format"] == "whomap-watch" and records[0]["target"]["pid"] == process.pid
    end = records[-1]
    assert end["type"] == "end" and end["reason"] == "time"
    first = end["rows"][0]
    assert first["class"] == "anonymous" and first["shape"]["pattern"] == "steady"
    # 256 KiB every 50 ms, or a bit less often on a busy machine.
    assert 60e6 < first["shape"]["bytes_per_minute"] < 330e6
    assert first["shape"]["low_per_minute"] > 0
    assert is_running(process.pid)


def test_nothing_grew(grower):
    process = grower(0)
    result = run("watch", "-p", process.pid, "-d", 1.5, "-i", 0.2, "--format", "json")
    assert result.returncode == 1, result.stdout
    assert end_of(result)["totals"]["rss_anon"]["change_bytes"] == 0


def test_until_growth(grower):
    process = grower()
    result = run("watch", "-p", process.pid, "-i", 0.2, "--until-growth", "4M", "--format", "json")
    assert result.returncode == 0, result.stderr
    end = end_of(result)
    assert end["reason"] == "growth" and end["totals"]["rss_anon"]["change_bytes"] >= 4 << 20
    quiet = grower(0)
    result = run("watch", "-p", quiet.pid, "-i", 0.2, "-d", 1, "--until-growth", "4M", "--format", "json")
    assert result.returncode == 1


def test_every_class_with_its_evidence(targets, compile_c, tmp_path):
    file = tmp_path / "a file"
    file.write_bytes(b"x" * 4096)
    process = targets.start(compile_c(ZOO, name="zoo"), file, ready=False)
    wanted = []
    for line in iter(process.stdout.readline, b""):
        if line.strip() == b"ready":
            break
        kind, address, word = line.decode().split()
        wanted.append((kind, int(address, 16), word))
    kinds = {kind for kind, _, _ in wanted}
    assert len(wanted) >= 19, wanted
    if "huge-pages" not in kinds:
        print("left out: hugetlb, no huge pages are set aside here")
    result = run("watch", "-p", process.pid, "-d", 0.3, "-i", 0.1, "--format", "json")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    regions = next(record for record in records if record.get("whole"))["regions"]
    by_inode = {}
    for kind, address, word in wanted:
        region = next(each for each in regions if int(each["start"], 16) <= address < int(each["end"], 16))
        said = " ".join([region["evidence"], *region.get("traits", [])])
        if kind == "huge":
            if region.get("anon_huge_pages", 0) == 0:
                print("left out: transparent huge pages, the kernel gave none")
                continue
            kind = "anonymous"
        assert region["class"] == kind, (kind, hex(address), region)
        assert word in said, (kind, word, region)
        if kind == "memfd":
            by_inode.setdefault(region["inode"], []).append(region)
    # One memory file mapped twice is one object: each mapping has the whole of it resident, and counts half.
    (twice,) = by_inode.values()
    assert len(twice) == 2 and sum(each["pss"] for each in twice) == 65536 == twice[0]["rss"]
    (row,) = [each for each in records[-1]["rows"] if each["class"] == "memfd"]
    assert row["count"] == 2 and row["resident"] == 65536, row


# D03: threads that are never joined; their number does not rise, that of their stacks does.
LEFT_BEHIND = r"""
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *nothing(void *unused) { return unused; }
int main(void) {
  static pthread_t thread;
  puts("ready"); fflush(stdout);
  for (;;) { pthread_create(&thread, NULL, nothing, NULL); usleep(50000); }
}
"""


def test_stacks_of_threads_that_nobody_joined(targets, compile_c):
    process = targets.start(compile_c(LEFT_BEHIND, name="left_behind"))
    result = run("watch", "-p", process.pid, "-d", 3, "-i", 0.2, "--format", "json")
    assert result.returncode == 0
    rows = [row for row in end_of(result)["rows"] if row["class"] == "exited-thread-stack"]
    assert sum(row["count"] for row in rows) >= 10, end_of(result)["rows"]
    assert sum(row["size_growth"] for row in rows) >= 8 * (8 << 20)


def test_arena_that_doubles_is_named_so(targets, tmp_path):
    fifo = tmp_path / "fifo"
    process = targets.start(EXAMPLES / "arena", "leak", fifo, 4096)
    out = tmp_path / "w.jsonl"
    watcher = subprocess.Popen([WHOMAP, "watch", "-p", str(process.pid), "-i", "0.1", "-q", "-o", out],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: out.exists() and '"sample"' in out.read_text(), "a first reading")
    samples = lambda: out.read_text().count('"sample"')
    for _ in range(20):  # up to 80 MiB: steps of 8, 16, 32, 64, 128 MiB
        with open(fifo, "w") as request:
            request.write("\n")
        with open(str(fifo) + ".done") as done:
            done.readline()
        before = samples()
        wait_until(lambda: samples() >= before + 2, "two more readings")
    watcher.send_signal(signal.SIGINT)
    out_text, err = watcher.communicate(timeout=PATIENCE)
    assert watcher.returncode == 130, err
    end = records_of(out)[-1]
    assert end["totals"]["mapped"]["pattern"] == "doubling", end["totals"]
    sizes = [step["bytes"] for step in end["totals"]["mapped"]["steps"]]
    assert all(1.8 < b / a < 2.2 for a, b in zip(sizes, sizes[1:])) and len(sizes) >= 3


@pytest.mark.parametrize("how, status, word", [("exit", 3, "has ended"), ("exec", 3, "exec'd another program")])
def test_the_end_of_the_process_ends_the_watch(grower, tmp_path, how, status, word):
    process = grower(100000, how)
    out = tmp_path / "w.jsonl"
    watcher = subprocess.Popen([WHOMAP, "watch", "-p", str(process.pid), "-i", "0.1", "-o", out],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: out.exists() and out.read_text().count('"sample"') > 3, "readings")
    process.stdin.write(b"x\n")
    process.stdin.flush()
    text, err = watcher.communicate(timeout=PATIENCE)
    assert watcher.returncode == status
    assert word in err and "RssAnon" in text  # what was seen is printed all the same
    assert records_of(out)[-1]["reason"] == ("target-exec" if how == "exec" else "target-exited")


def test_a_killed_watch_leaves_a_file_that_is_read(grower, tmp_path):
    process = grower()
    out = tmp_path / "w.jsonl"
    watcher = subprocess.Popen([WHOMAP, "watch", "-p", str(process.pid), "-i", "0.1", "-o", out],
                               stdout=subprocess.DEVNULL)
    wait_until(lambda: out.exists() and out.read_text().count('"sample"') > 5, "readings")
    watcher.kill()
    watcher.wait()
    assert len(records_of(out)) > 5
    trace = tmp_path / "t"
    result = run("trace", "-p", process.pid, "-d", 2, "--regions", out, "--format", "json", "-o", trace)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["watched"]["seconds"] > 2


def test_hand_over_to_match_and_trace(grower, tmp_path):
    process = grower()
    watch, trace = tmp_path / "w.jsonl", tmp_path / "t"
    assert run("watch", "-p", process.pid, "-d", 4, "-i", 0.2, "-q", "-o", watch).returncode == 0
    result = run("trace", "-p", process.pid, "-d", 2, "--regions", watch, "-o", trace)
    assert result.returncode == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "Watched for" in text and "grows steadily" in text, result.stdout
    assert "watched for" in text  # beside its region
    alone = json.loads(run("match", trace, "--format", "json").stdout)
    both = json.loads(run("match", trace, watch, "--format", "json").stdout)
    assert "watched" not in alone
    assert both["growth"] == alone["growth"] and both["stacks"] == alone["stacks"]
    watched = both["watched"]
    assert watched["seconds"] > 5 and watched["mapped_bytes"] > both["growth"]["mapped_bytes"]
    assert watched["in_explained_regions_bytes"] >= 0.9 * watched["mapped_bytes"]
    assert both["regions"][0]["watched"]["size_delta"] > both["regions"][0]["size_delta"]
    # A watch of the time after the trace says what stayed.
    later = tmp_path / "later.jsonl"
    assert run("watch", "-p", process.pid, "-d", 0.5, "-i", 0.2, "-q", "-o", later).returncode in (0, 1)
    after = json.loads(run("match", trace, later, "--format", "json").stdout)["watched"]
    assert after["seconds_after"] > 0
    assert after["still_mapped_bytes"] >= 0.95 * both["growth"]["mapped_bytes"]


def test_a_watch_that_is_cut_in_a_line_is_used_and_said_to_be(grower, tmp_path):
    process = grower()
    watch, trace = tmp_path / "w.jsonl", tmp_path / "t"
    assert run("watch", "-p", process.pid, "-d", 1.5, "-i", 0.2, "-q", "-o", watch).returncode == 0
    assert run("trace", "-p", process.pid, "-d", 1, "-q", "-o", trace).returncode == 0
    def answer():
        result = run("match", trace, watch)
        return result.returncode, " ".join(result.stdout.split())
    status, whole = answer()
    assert "Watched for" in whole and "middle of a line" not in whole
    watch.write_bytes(watch.read_bytes()[:-20])
    cut_status, cut = answer()
    assert cut_status == status and "Watched for" in cut
    assert "ends in the middle of a line" in cut, cut


@pytest.mark.parametrize("engine", ["probe", "gdb"])
def test_a_trace_beside_it_is_no_growth(grower, tmp_path, engine):
    """The ring of a trace (64 MiB of shared memory) and its stubs, which stay."""
    process = grower(0)
    out = tmp_path / "w.jsonl"
    watcher = subprocess.Popen([WHOMAP, "watch", "-p", str(process.pid), "-i", "0.1", "-q", "-o", out],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    samples = lambda: out.read_text().count('"sample"')
    wait_until(lambda: out.exists() and samples() > 2, "readings")
    trace = run("trace", "-p", process.pid, "-d", 1, "-q", "--engine", engine, "-o", tmp_path / "t")
    assert trace.returncode in (0, 1), trace.stderr
    before = samples()
    wait_until(lambda: samples() > before + 2, "readings after the trace")
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=PATIENCE)
    records = records_of(out)
    end = records[-1]
    for name in ("rss_shmem", "mapped"):
        assert end["totals"][name]["change_bytes"] == 0, end["totals"]
    # Pages of code that were written to became the process's own, and what was pushed on its stack.
    assert end["totals"]["rss_anon"]["change_bytes"] < 256 << 10, end["totals"]
    assert not any("whomap-ring" in region.get("name", "") for record in records for region in record.get("regions", []))
    shmem = [record["totals"]["rss_shmem"] for record in records if record.get("type") == "sample"]
    # A reading may fall into the moment in which the ring comes or goes.
    assert sum(bytes > min(shmem) + (4 << 20) for bytes in shmem) <= 2, shmem


# Keeps memory in several of python's ways, and starts a child each time: a process that forks all the time.
PYTHON_GROWER = """
import mmap, os, sys, time
kept = []
print("ready", flush=True)
while True:
    kept.append(bytearray(b"x" * 300_000))
    area = mmap.mmap(-1, 1 << 18)
    area.write(b"y" * (1 << 18))
    kept.append(area)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(0.02)
"""


def test_python_that_forks_all_the_time(targets, tmp_path):
    process = targets.start("/usr/bin/python3", "-c", PYTHON_GROWER)
    out = tmp_path / "w.jsonl"
    result = run("watch", "-p", process.pid, "-d", 3, "-i", 0.2, "-o", out)
    assert result.returncode == 0, result.stderr
    records = records_of(out)
    end = records[-1]
    assert all(record["totals"]["rss_anon"] is not None for record in records if record.get("type") == "sample")
    # bytearray comes from malloc, which maps 300,000 bytes or takes them from the heap; mmap(-1) is shared memory.
    grown = {row["class"] for row in end["rows"] if row["resident_growth"] >= 1 << 20}
    assert "shared-memory" in grown and grown & {"anonymous", "heap"}, end["rows"]
    assert end["totals"]["rss_anon"]["change_bytes"] > 1 << 20 and end["totals"]["rss_shmem"]["change_bytes"] > 1 << 20
    assert "RssShmem +" in result.stdout and "RssAnon +" in result.stdout
    assert is_running(process.pid)


def test_ends_at_any_moment(grower, tmp_path):
    """exit, exec and a kill between any two reads: a clear word each time, and a file that is read."""
    program = grower(0)  # compiles it
    for i, how in enumerate(["exit", "exec", "kill"] * 4):
        process = grower(100000, how)
        out = tmp_path / f"w{i}.jsonl"
        watcher = subprocess.Popen([WHOMAP, "watch", "-p", str(process.pid), "-i", "0.1", "-o", out],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: out.exists() and '"sample"' in out.read_text(), "a first reading")
        time.sleep(i * 0.01)  # not to wait for anything: to end it at another moment
        if how == "kill":
            process.kill()
        else:
            process.stdin.write(b"x\n")
            process.stdin.flush()
        text, err = watcher.communicate(timeout=PATIENCE)
        assert watcher.returncode == 3, (how, err)
        assert ("exec'd another program" if how == "exec" else "has ended") in err and "next:" not in err
        assert records_of(out)[-1]["reason"] == ("target-exec" if how == "exec" else "target-exited")
    assert is_running(program.pid)


def test_a_full_disk_ends_the_watch_with_what_there_was_room_for(grower, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs")
    process = grower()
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "none", small], capture_output=True).returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        out = small / "w.jsonl"
        result = run("watch", "-p", process.pid, "-i", 0.1, "-o", out)
        assert result.returncode == 8 and "No space left" in result.stderr, result.stderr
        assert "RssAnon" in result.stdout  # what was seen is printed all the same
        lines = out.read_bytes().split(b"\n")
        assert all(json.loads(line) for line in lines[:-1]) and len(lines) > 2
        trace = tmp_path / "t"
        result = run("trace", "-p", process.pid, "-d", 1, "--regions", out, "-o", trace)
        assert result.returncode == 0 and "Watched for" in " ".join(result.stdout.split()), result.stderr
    finally:
        subprocess.run(["umount", small])
    assert is_running(process.pid)


def test_a_watch_of_another_process_is_refused(grower, tmp_path):
    one, other = grower(), grower()
    watch, trace = tmp_path / "w.jsonl", tmp_path / "t"
    run("watch", "-p", one.pid, "-d", 0.3, "-i", 0.1, "-q", "-o", watch)
    result = run("trace", "-p", other.pid, "-d", 1, "--regions", watch, "-o", trace)
    assert result.returncode == 6 and str(one.pid) in result.stderr
    assert not trace.exists()
    assert is_running(other.pid)


@pytest.mark.parametrize("arguments", [
    ("-i", "0"), ("-i", "0.01"), ("-i", "x"), ("-d", "-1"), ("-d", "x"), ("--until-growth", "0"), ("--until-growth", "x"),
    ("--format", "text"), ("--nonsense",)])
def test_wrong_usage(grower, arguments):
    result = run("watch", "-p", grower(0).pid, *arguments)
    assert result.returncode == 2 and result.stdout == "" and len(result.stderr.splitlines()) == 1, result.stderr


def test_output_that_cannot_be_written(grower, tmp_path):
    process = grower()
    there = tmp_path / "there"
    there.write_text("kept")
    result = run("watch", "-p", process.pid, "-d", 1, "-o", there)
    assert result.returncode == 8 and there.read_text() == "kept" and "--force" in result.stderr
    with open("/dev/full", "w") as full:
        full_disk = subprocess.run([WHOMAP, "watch", "-p", str(process.pid), "-d", "1", "-i", "0.1", "--format", "json"],
                                   stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert full_disk.returncode == 8 and "No space left" in full_disk.stderr
    assert is_running(process.pid)


def test_another_users_process(grower, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    process = grower(0)
    nobody = 65534
    copy = tmp_path / "whomap"
    copy.write_bytes(WHOMAP.read_bytes())
    copy.chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    result = subprocess.run([copy, "watch", "-p", str(process.pid), "-d", "1"], capture_output=True, text=True,
                            user=nobody, group=nobody, extra_groups=[])
    assert result.returncode == 4, result.stderr
    assert "user" in result.stderr and len(result.stderr.splitlines()) == 1


class Terminal:
    """whomap watch on a pseudo-terminal, in a session of its own."""

    def __init__(self, *arguments, size=(24, 80), env=None):
        self.main, self.side = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self.side)
        self.text = b""

        def take_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})}
        environment.pop("NO_COLOR", None) if not (env or {}).get("NO_COLOR") else None
        self.process = subprocess.Popen([WHOMAP, "watch", *map(str, arguments)], stdin=self.side, stdout=self.side,
                                        stderr=self.side, env=environment, preexec_fn=take_terminal)
        os.set_blocking(self.main, False)

    def resize(self, rows, columns):
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        try:
            while piece := os.read(self.main, 65536):
                self.text += piece
        except (BlockingIOError, OSError):
            pass
        return self.text

    def expect(self, what):
        wait_until(lambda: what in self.read(), repr(what))

    def send(self, keys):
        os.write(self.main, keys)

    def wait(self):
        wait_until(lambda: (self.read(), self.process.poll() is not None)[1], "the end of the watch")
        self.read()
        return self.process.returncode

    def is_restored(self):
        """Modes as before, alternate screen left, cursor shown."""
        self.read()
        left = self.text.rfind(b"\x1b[?1049l")
        shown = max(self.text.rfind(b"\x1b[?25h"), self.text.rfind(b"\x1b[?12l\x1b[?25h"))
        return (termios.tcgetattr(self.side) == self.before and left > self.text.rfind(b"\x1b[?1049h") >= 0
                and shown > self.text.rfind(b"\x1b[?25l"))

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.main)
        os.close(self.side)


@pytest.fixture
def terminal():
    opened = []

    def start(*arguments, **options):
        opened.append(Terminal(*arguments, **options))
        return opened[-1]
    yield start
    for each in opened:
        each.close()


def test_the_table_its_keys_and_the_way_back(grower, terminal):
    process = grower()
    screen = terminal("-p", process.pid, "-i", 0.2)
    screen.expect(b"q quit")
    screen.expect(b"1 region")  # growth was seen: the exit status will be 0
    screen.send(b"s")
    screen.expect(b"esident)")  # of "(rate)" the first letter stays
    screen.send(b"p")
    screen.expect(b"paused")
    screen.send(b" p")
    screen.send(b"q")
    assert screen.wait() == 0
    assert screen.is_restored()
    assert b"ended by q" in screen.text
    assert "▁".encode() in screen.text


@pytest.mark.parametrize("number, status", [
    (signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130), (signal.SIGQUIT, 130), (signal.SIGSEGV, -11),
    (signal.SIGABRT, -6)])
def test_the_terminal_is_restored_whatever_ends_the_watch(grower, terminal, number, status):
    screen = terminal("-p", grower().pid, "-i", 0.2)
    screen.expect(b"q quit")
    os.kill(screen.process.pid, number)
    assert screen.wait() == status
    assert screen.is_restored()


def test_the_end_of_the_process_restores_the_terminal(grower, terminal):
    process = grower()
    screen = terminal("-p", process.pid, "-i", 0.2)
    screen.expect(b"q quit")
    process.kill()
    assert screen.wait() == 3
    assert screen.is_restored() and b"has ended" in screen.text


def test_stop_and_go_on(grower, terminal):
    screen = terminal("-p", grower().pid, "-i", 0.2)
    screen.expect(b"q quit")
    for _ in range(3):
        screen.send(b"\x1a")
        wait_until(lambda: (screen.read(), status_field(screen.process.pid, "State"))[1].startswith("T"), "the stop")
        assert screen.is_restored()
        seen = len(screen.text)
        os.kill(screen.process.pid, signal.SIGCONT)
        wait_until(lambda: b"\x1b[?1049h" in screen.read()[seen:], "the table again")
    screen.send(b"q")
    assert screen.wait() in (0, 1) and screen.is_restored()  # 1: in so short a time nothing was seen to grow


def test_sizes_from_nothing_to_huge_and_a_storm_of_them(grower, terminal):
    screen = terminal("-p", grower().pid, "-i", 0.1, size=(3, 20))
    screen.expect(b"RssAnon")
    for size in [(1, 1), (2, 5), (8, 20), (50, 300), (1, 80), (24, 2)] * 20:
        screen.resize(*size)
        os.kill(screen.process.pid, signal.SIGWINCH)
        screen.read()
    screen.resize(24, 80)
    os.kill(screen.process.pid, signal.SIGWINCH)
    seen = len(screen.read())
    wait_until(lambda: b"q quit" in screen.read()[seen:], "the table")
    screen.send(b"q")
    assert screen.wait() in (0, 1) and screen.is_restored()  # 1: in so short a time nothing was seen to grow


def test_no_color(grower, terminal):
    process = grower()
    red = b"\x1b[1m\x1b[31m"
    colored = terminal("-p", process.pid, "-i", 0.2)
    wait_until(lambda: red in colored.read() or b"[31m" in colored.text, "a growing row in colour")
    plain = terminal("-p", process.pid, "-i", 0.2, env={"NO_COLOR": "1"})
    plain.expect(b"anonymous")
    time_of = wait_until(lambda: plain.read().count(b"anonymous") > 1, "more than one table")
    assert time_of and not re.search(rb"\x1b\[[0-9;]*3[0-7]m", plain.text)


def test_plain_lines_where_there_is_no_screen(grower, terminal):
    process = grower()
    result = run("watch", "-p", process.pid, "-d", 1, "-i", 0.2)
    assert "\x1b" not in result.stdout
    lines = [line for line in result.stdout.splitlines() if re.match(r" +\d+\.\d s  RssAnon ", line)]
    assert len(lines) >= 3
    dumb = terminal("-p", process.pid, "-d", 1, "-i", 0.2, env={"TERM": "dumb"})
    assert dumb.wait() == 0 and b"\x1b" not in dumb.text
    unknown = terminal("-p", process.pid, "-d", 1, "-i", 0.2, env={"TERM": "no-such-terminal"})
    assert unknown.wait() == 0 and b"\x1b[?1049h" not in unknown.text


def test_tmux(grower, tmp_path):
    """The table as a person sees it."""
    process = grower()
    tmux = ["tmux", "-L", f"whomap-{os.getpid()}", "-f", "/dev/null"]
    shell = f"LC_ALL=C.UTF-8 {WHOMAP} watch -p {process.pid} -i 0.2; echo STATUS $?; cat"
    subprocess.run([*tmux, "new-session", "-d", "-x", "80", "-y", "17", shell], check=True)
    try:
        def shown():
            return subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True).stdout
        def whole_table():  # one picture: it may be taken while the table is drawn
            text = shown()
            return (text if text.startswith("RssAnon +")
                    and all(part in text for part in ("1 region", "per min", "anonymous", "cost ", "q quit")) else None)
        text = wait_until(whole_table, "the table in tmux")
        assert all(len(line) <= 80 for line in text.splitlines())
        assert "q quit" in text.splitlines()[16]  # the terminal's own last line, before any resize
        subprocess.run([*tmux, "send-keys", "s"], check=True)
        wait_until(lambda: "(resident)" in shown(), "another order")
        subprocess.run([*tmux, "resize-window", "-x", "40", "-y", "10"], check=True)
        small = lambda text: len(text.splitlines()) <= 10 and "q quit" in text
        wait_until(lambda: small(shown()), "the small table")
        subprocess.run([*tmux, "resize-window", "-x", "80", "-y", "24"], check=True)
        subprocess.run([*tmux, "send-keys", "q"], check=True)
        wait_until(lambda: "STATUS 0" in shown(), "the end")
    finally:
        subprocess.run([*tmux, "kill-server"], capture_output=True)


def test_watching_does_not_stop_or_change_the_process(grower):
    process = grower()
    switches = status_field(process.pid, "nonvoluntary_ctxt_switches")
    result = run("watch", "-p", process.pid, "-d", 2, "-i", 0.1, "--format", "json")
    cost = end_of(result)["cost"]
    assert status_field(process.pid, "TracerPid") == "0" and is_running(process.pid)
    assert cost["cpu_seconds"] < 1 and cost["smaps"]["count"] >= 2, (cost, switches)
