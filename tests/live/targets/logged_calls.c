// SPDX-License-Identifier: Apache-2.0
// 8 threads make system calls of many kinds as fast as they can, through syscall() and through the C library, and each
// writes down what it did: logged_calls LOG QUOTA [signals]. Says "ready"; a byte on standard input starts the calls that are
// written down, "done" ends them. The log is an array of `record`s per thread.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { threads = 8, page = 4096 };

struct record {
  uint64_t tid, number, arguments[6], result, enter_ns, exit_ns;
};

struct worker {
  struct record *records;
  unsigned long count;
  pid_t tid;
  int index;
};

static struct worker workers[threads];
static unsigned long quota, capacity;
static volatile int started, finished;
static int with_signals;
static __thread struct worker *self;

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void die(const char *what) {
  fprintf(stderr, "logged_calls: %s\n", what);
  _exit(3);
}

// `library`: through the wrapper of the C library, which turns a failure into -1 and errno.
static uint64_t logged(int library, long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {
  struct worker *const me = self;
  uint64_t result = 0;
  const uint64_t enter = now();
  if (!library || number == SYS_brk) {
    result = (uint64_t)syscall(number, a, b, c, d, e, f);
  } else if (number == SYS_mmap) {
    result = (uint64_t)mmap((void *)a, b, (int)c, (int)d, (int)e, (off_t)f);
  } else if (number == SYS_munmap) {
    result = (uint64_t)munmap((void *)a, b);
  } else {
    result = (uint64_t)mremap((void *)a, b, c, (int)d, (void *)e);
  }
  const uint64_t exit = now();
  const unsigned long at = __atomic_fetch_add(&me->count, 1, __ATOMIC_RELAXED);  // a handler may come in between
  if (at >= capacity) die("the log is full");
  me->records[at] = (struct record){(uint64_t)me->tid, (uint64_t)number, {a, b, c, d, e, f}, result, enter, exit};
  return result;
}

static uint64_t map(int library, uint64_t size, int flags) {
  const uint64_t got = logged(library, SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (uint64_t)flags, ~0ul, 0);
  if (got == ~0ul) die("mmap failed");
  volatile unsigned char *const bytes = (void *)got;
  if (bytes[0] != 0 || bytes[size - 1] != 0) die("a mapping is not fresh");
  bytes[0] = bytes[size - 1] = 0xA5;
  return got;
}

static void unmap(int library, uint64_t address, uint64_t size) {
  volatile unsigned char *const bytes = (void *)address;
  if (bytes[0] != 0xA5 || bytes[size - 1] != 0xA5) die("a mapping was overwritten");
  if (logged(library, SYS_munmap, address, size, 0, 0, 0, 0) != 0) die("munmap failed");
}

static void on_signal(int signal) {
  (void)signal;
  if (!started || self->count + 64 > quota) return;
  const uint64_t at = map(self->count & 1, 3 * page, 0);
  unmap(self->count & 1, at, 3 * page);
}

static void *work(void *argument) {
  self = argument;
  self->tid = (pid_t)syscall(SYS_gettid);
  while (!started) syscall(SYS_getppid);
  for (unsigned long n = 0; self->count < quota; ++n) {
    const int library = n % 2 == 0;
    // Each mapping of a thread has another length than its last ones, so that a swapped record shows.
    const uint64_t size = page * (1 + (uint64_t)self->index + 8 * (n % 29));
    uint64_t at = map(library, size, n % 64 == 0 ? MAP_POPULATE : 0);
    if (n % 3 == 0) {
      const uint64_t larger = size + 16 * page;
      at = logged(library, SYS_mremap, at, size, larger, MREMAP_MAYMOVE, 0, 0);
      if (at == ~0ul) die("mremap failed");
      ((volatile unsigned char *)at)[larger - 1] = 0xA5;
      unmap(!library, at, larger);
    } else {
      unmap(!library, at, size);
    }
    if (n % 5 == 0) logged(0, SYS_brk, 0, 0, 0, 0, 0, 0);
    if (n % 7 == 0 && logged(library, SYS_mmap, 0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, ~0ul, 0) != ~0ul)
      die("an mmap of nothing succeeded");
    if (n % 11 == 0 && logged(library, SYS_munmap, 1, page, 0, 0, 0, 0) != ~0ul) die("an munmap of address 1 succeeded");
    // It blocks while it maps all of it, and other threads pass the same instructions.
    if (n % 200 == 0) unmap(0, map(0, 16ul << 20, MAP_POPULATE), 16ul << 20);
    for (int i = 0; i < 5; ++i) syscall(SYS_getppid);
  }
  __atomic_fetch_add(&finished, 1, __ATOMIC_SEQ_CST);
  while (1) pause();
  return NULL;
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  quota = strtoul(arguments[2], NULL, 10);
  capacity = quota + 1024;
  with_signals = count > 3;
  const int file = open(arguments[1], O_RDWR | O_CREAT | O_EXCL, 0600);
  const size_t size = threads * capacity * sizeof(struct record);
  if (file < 0 || ftruncate(file, (off_t)size) != 0) return 2;
  struct record *const log = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (log == MAP_FAILED) return 2;
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, NULL);
  pthread_t ids[threads];
  for (int i = 0; i < threads; ++i) {
    workers[i] = (struct worker){log + (size_t)i * capacity, 0, 0, i};
    pthread_create(&ids[i], NULL, work, &workers[i]);
  }
  puts("ready");
  fflush(stdout);
  char order = 0;
  if (read(0, &order, 1) != 1) return 0;
  started = 1;
  while (finished < threads) {
    const struct timespec pause = {0, with_signals ? 3000000 : 2000000};
    nanosleep(&pause, NULL);
    if (with_signals)
      for (int i = 0; i < threads; ++i) pthread_kill(ids[i], SIGUSR1);
  }
  puts("done");
  fflush(stdout);
  (void)!read(0, &order, 1);
  return 0;
}
