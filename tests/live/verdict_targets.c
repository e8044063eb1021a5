/* SPDX-License-Identifier: Apache-2.0
 * One program that grows in one known way, or does not: verdict_targets WHAT. Begins at a line on standard input. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { anonymous = MAP_PRIVATE | MAP_ANONYMOUS, both = PROT_READ | PROT_WRITE };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static void pause_us(long us) {
  struct timespec t = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&t, NULL);
}
static void begin(void) {
  char line[8];
  puts("ready");
  fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) exit(1);
}

__attribute__((noinline)) void *get_buffer(size_t bytes) {
  char *buffer = mmap(NULL, bytes, both, anonymous, -1, 0);
  buffer[0] = 1;
  return buffer;
}
__attribute__((noinline)) void put_buffer(void *buffer, size_t bytes) { munmap(buffer, bytes); }

/* 200 balanced calls for one that leaks, through the same function. */
__attribute__((noinline)) void traffic(int leaks) {
  for (unsigned i = 0;; ++i) {
    char *buffer = get_buffer(65536);
    memset(buffer, 1, 65536);
    if (!leaks || i % 200 != 0) put_buffer(buffer, 65536);
    pause_us(400);
  }
}

__attribute__((noinline)) void fill_cache(void) {
  for (int i = 0; i < 20; ++i) {
    memset(get_buffer(1 << 20), 1, 1 << 20);
    pause_us(20000);
  }
  for (;;) pause_us(1000000);
}

/* Blocks below malloc's mmap threshold, freed but for the last one, and taken again and again. */
__attribute__((noinline)) void *keep_block(void) { return malloc(100000); }
__attribute__((noinline)) void warm_up_malloc(void) {
  enum { blocks = 300 };
  static void *block[blocks];
  for (int i = 0; i < blocks; ++i) {
    block[i] = keep_block();
    memset(block[i], 1, 100000);
    pause_us(2000);
  }
  for (unsigned i = 0;; i = (i + 7) % (blocks - 1)) {
    free(block[i]);
    block[i] = malloc(100000);
    pause_us(2000);
  }
}

__attribute__((noinline)) void leak_malloc(void) {
  for (;;) {
    memset(malloc(200000), 1, 200000);
    pause_us(20000);
  }
}

static void fill_reservation(char *reserved) {
  for (size_t at = 0; at < 64u << 20; at += 131072) {
    mprotect(reserved + at, 131072, both);
    memset(reserved + at, 1, 131072);
    pause_us(10000);
  }
  for (;;) pause_us(1000000);
}

static void *arena_user(void *unused) {
  begin();
  for (;;) { /* D05 (a): an arena grows inside its reservation by mprotect */
    memset(malloc(65536), 1, 65536);
    pause_us(25000);
  }
  return unused;
}

static void *ends_at_once(void *unused) { return unused; }
__attribute__((noinline)) void start_poll_thread(void) {
  static pthread_t thread; /* D03: every thread into the same variable, none joined */
  pthread_create(&thread, NULL, ends_at_once, NULL);
}

static void touch_file(void) {
  char name[] = "/var/tmp/whomap-touched-XXXXXX";
  const int fd = mkstemp(name);
  unlink(name);
  static char page[4096];
  for (int i = 0; i < 8192; ++i)
    if (write(fd, page, sizeof page) != sizeof page) exit(1);
  volatile char *file = mmap(NULL, 8192 * 4096, PROT_READ, MAP_SHARED, fd, 0);
  begin();
  char sum = 0;
  for (size_t i = 0;; ++i) {
    if (i < 8192) sum += file[i * 4096];
    if (i % 16 == 0) pause_us(8000);
  }
}

int main(int count, char **arguments) {
  const char *what = count > 1 ? arguments[1] : "";
  if (!strcmp(what, "file-pages")) touch_file();
  if (!strcmp(what, "arena")) {
    pthread_t thread;
    free(malloc(16)); /* the main arena is this thread's */
    pthread_create(&thread, NULL, arena_user, NULL);
    pthread_join(thread, NULL);
  }
  char *reserved = mmap(NULL, 64u << 20, PROT_NONE, anonymous, -1, 0);
  begin();
  if (!strcmp(what, "leak") || !strcmp(what, "no-site")) traffic(1);
  if (!strcmp(what, "churn")) traffic(0);
  if (!strcmp(what, "plateau")) fill_cache();
  if (!strcmp(what, "retention")) warm_up_malloc();
  if (!strcmp(what, "malloc")) leak_malloc();
  if (!strcmp(what, "reservation")) fill_reservation(reserved);
  if (!strcmp(what, "thread-stacks"))
    for (;;) {
      start_poll_thread();
      pause_us(50000);
    }
  const double start = now();
  while (now() - start < 600) pause_us(100000);
  return 0;
}
