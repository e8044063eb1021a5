// SPDX-License-Identifier: Apache-2.0
// What the benchmarks trace: paced_calls MAPPERS COUNTERS CALLERS DEPTH [WORK]. MAPPERS threads map memory through syscall(), DEPTH
// frames deep, as fast as they can, or with so many rounds of a loop between two calls; COUNTERS threads only compute; CALLERS threads call getppid through syscall(). Says
// "ready"; answers each line on standard input with "NANOSECONDS MAPPED COUNTED CALLED PROCESSOR", sums since the start; the last
// is the MAPPERS' processor time in nanoseconds.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct {
  unsigned long value;
  char rest[120];  // a cache line of its own, and its neighbour
} counters[64];
static int kinds[64], depth, rounds;
static pthread_t threads_of[64];

__attribute__((noinline)) static void descend(int left, void *place) {
  if (left > 0) {
    descend(left - 1, place);
  } else {
    syscall(SYS_mmap, place, 4096L, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L);
  }
  __asm__ volatile("" ::: "memory");  // no tail call: each frame stays
}

static void *work(void *argument) {
  const long own = (long)argument;
  unsigned long *const counter = &counters[own].value;
  void *const place = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  while (1) {
    if (kinds[own] == 0) {
      descend(depth, place);
      for (volatile int i = 0; i < rounds; ++i) {
      }
    } else if (kinds[own] == 1) {
      for (volatile int i = 0; i < 1000; ++i) {
      }
    } else {
      for (int i = 0; i < 100; ++i) syscall(SYS_getppid);
    }
    __atomic_fetch_add(counter, kinds[own] == 2 ? 100 : 1, __ATOMIC_RELAXED);
  }
  return NULL;
}

int main(int count, char **arguments) {
  if (count < 5) return 2;
  // start_thread, clone3, work, syscall and descend itself are frames too.
  depth = atoi(arguments[4]) - 5;
  if (count > 5) rounds = atoi(arguments[5]);
  int threads = 0;
  for (int kind = 0; kind < 3; ++kind)
    for (int i = atoi(arguments[kind + 1]); i > 0; --i) kinds[threads++] = kind;
  for (long i = 0; i < threads; ++i) pthread_create(&threads_of[i], NULL, work, (void *)i);
  puts("ready");
  fflush(stdout);
  char line[16];
  while (fgets(line, sizeof line, stdin) != NULL) {
    unsigned long sums[3] = {0, 0, 0};
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (int i = 0; i < threads; ++i) sums[kinds[i]] += __atomic_load_n(&counters[i].value, __ATOMIC_RELAXED);
    long processor = 0;
    for (int i = 0; i < threads; ++i) {
      clockid_t clock;
      struct timespec used;
      if (kinds[i] != 0 || pthread_getcpuclockid(threads_of[i], &clock) != 0 || clock_gettime(clock, &used) != 0) continue;
      processor += used.tv_sec * 1000000000L + used.tv_nsec;
    }
    printf("%ld %lu %lu %lu %ld\n", now.tv_sec * 1000000000L + now.tv_nsec, sums[0], sums[1], sums[2], processor);
    fflush(stdout);
  }
  return 0;
}
