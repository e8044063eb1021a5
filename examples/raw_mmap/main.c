/* SPDX-License-Identifier: Apache-2.0
 * A small server: each request takes a slab, works in a scratch buffer, and gives both back. It grows by
 * 3.2 MB a second, and malloc knows nothing of it.
 *   raw_mmap [SECONDS [LOG]]     LOG gets a line "leak|map|unmap ADDRESS LENGTH" for every mapping */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "pool.h"

static FILE *log_file;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void note(const char *what, const void *address, size_t bytes) {
  if (log_file) fprintf(log_file, "%s %p %zu\n", what, address, bytes);
}

__attribute__((noinline)) static void handle_request(unsigned number) {
  const size_t slab_bytes = 65536u << (number % 2);
  void *slab = pool_take(slab_bytes);
  note("leak", slab, slab_bytes);
  for (int i = 0; i < 4; ++i) {
    void *scratch = pool_scratch(262144);
    note("map", scratch, 262144);
    pool_scratch_end(scratch, 262144);
    note("unmap", scratch, 262144);
  }
  void *plain = mmap(NULL, 131072, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  note("map", plain, 131072);
  munmap(plain, 131072);
  note("unmap", plain, 131072);
  pool_give(slab, slab_bytes);
}

int main(int count, char **arguments) {
  const double seconds = count > 1 ? atof(arguments[1]) : 120;
  if (count > 2 && !(log_file = fopen(arguments[2], "w"))) {
    perror(arguments[2]);
    return 1;
  }
  printf("ready\n");
  fflush(stdout);
  const double begin = now();
  for (unsigned number = 0; now() - begin < seconds; ++number) {
    handle_request(number);
    if (log_file) fflush(log_file);
    const struct timespec pause = {0, 30 * 1000 * 1000};
    nanosleep(&pause, NULL);
  }
  return 0;
}
