// SPDX-License-Identifier: Apache-2.0
// A thread that watches the clock: clock_gaps THREADS VFORK_MS [LIBRARY...]. Loads the libraries, starts THREADS that sleep, and with
// VFORK_MS above 0 one that makes vfork children which live so long. Says "ready", then prints "END_NS GAP_NS" for each time it
// did not get to look for more than 0.3 ms. It sleeps 50 us between its looks, at a real-time priority where it may: other
// programs on the machine then leave it alone.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static long vfork_ms;

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void *sleep_long(void *unused) {
  while (1) pause();
  return unused;
}

static void *make_children(void *unused) {
  while (1) {
    const struct timespec life = {vfork_ms / 1000, vfork_ms % 1000 * 1000000};
    if (vfork() == 0) {
      nanosleep(&life, NULL);
      _exit(0);
    }
    munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
    usleep(20000);
  }
  return unused;
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  vfork_ms = atol(arguments[2]);
  for (int i = 3; i < count; ++i)
    if (dlopen(arguments[i], RTLD_NOW) == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 65536);
  pthread_t thread;
  for (long i = atol(arguments[1]); i > 0; --i) pthread_create(&thread, &small, sleep_long, NULL);
  if (vfork_ms > 0) pthread_create(&thread, NULL, make_children, NULL);
  const struct sched_param priority = {1};
  pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
  puts("ready");
  fflush(stdout);
  for (long last = now();;) {
    const struct timespec pause = {0, 50000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    const long here = now();
    if (here - last > 300000) {
      printf("%ld %ld\n", here, here - last);
      fflush(stdout);
    }
    last = here;
  }
}
