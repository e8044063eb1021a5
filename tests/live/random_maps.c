/* SPDX-License-Identifier: Apache-2.0
 * Threads that map, unmap, move, replace and attach memory at random, each only its own: random_maps THREADS CALLS.
 * Begins at a line on standard input, says "done", and stays as it is then. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { most = 64, page = 4096, both = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS };
struct block {
  char *at;
  size_t pages;
};
struct thread {
  struct block block[most];
  int blocks;
  void *segment;
  uint64_t random;
};
static long calls;

static size_t below(struct thread *t, size_t limit) {
  t->random ^= t->random << 13;
  t->random ^= t->random >> 7;
  t->random ^= t->random << 17;
  return t->random % limit;
}

static void keep(struct thread *t, char *at, size_t pages) {
  if (at == MAP_FAILED || pages == 0) return;
  if (t->blocks == most) {
    munmap(at, pages * page);
    return;
  }
  t->block[t->blocks++] = (struct block){at, pages};
}

static void map(struct thread *t) {
  const size_t pages = 1 + below(t, 40);
  void *hint = below(t, 4) == 0 ? (void *)(0x600000000000 + below(t, 1000) * 65536) : NULL;
  const size_t short_by = below(t, 2) ? below(t, page) : 0; /* the kernel rounds up */
  if (below(t, 3) == 0) {
    keep(t, (char *)syscall(SYS_mmap, hint, pages * page - short_by, both, anonymous, -1, 0L), pages);
  } else {
    keep(t, mmap(hint, pages * page - short_by, both, anonymous, -1, 0), pages);
  }
}

static void step(struct thread *t) {
  if (t->blocks == 0) return map(t);
  const int which = (int)below(t, (size_t)t->blocks);
  struct block b = t->block[which];
  switch (below(t, 12)) {
    case 0: case 1: case 2: return map(t);
    case 3: case 4: /* all of it */
      t->block[which] = t->block[--t->blocks];
      munmap(b.at, b.pages * page);
      return;
    case 5: /* a hole in the middle */
      if (b.pages < 3) return;
      t->block[which].pages = 1;
      munmap(b.at + page, (b.pages - 2) * page);
      return keep(t, b.at + (b.pages - 1) * page, 1);
    case 6: { /* another mapping in its place */
      const size_t pages = 1 + below(t, b.pages);
      mmap(b.at, pages * page, both, anonymous | MAP_FIXED, -1, 0);
      mmap(b.at, page, both, anonymous | MAP_FIXED_NOREPLACE, -1, 0); /* fails */
      return;
    }
    case 7: { /* grow, shrink, move */
      const size_t pages = 1 + below(t, 60);
      char *moved = mremap(b.at, b.pages * page, pages * page, below(t, 3) ? MREMAP_MAYMOVE : 0);
      if (moved != MAP_FAILED) t->block[which] = (struct block){moved, pages};
      return;
    }
    case 8: { /* onto another of its blocks */
      const int other = (int)below(t, (size_t)t->blocks);
      struct block o = t->block[other];
      if (other == which || o.pages < b.pages) return;
      if (mremap(b.at, b.pages * page, b.pages * page, MREMAP_MAYMOVE | MREMAP_FIXED, o.at) == MAP_FAILED) abort();
      t->block[which] = t->block[--t->blocks];
      return;
    }
    case 9: { /* leaves the old mapping where it is */
      char *moved = mremap(b.at, b.pages * page, b.pages * page, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
      return keep(t, moved, b.pages);
    }
    case 10:
      if (t->segment) {
        shmdt(t->segment);
        t->segment = NULL;
      } else {
        const int id = shmget(IPC_PRIVATE, (1 + below(t, 8)) * page, IPC_CREAT | 0600);
        t->segment = shmat(id, NULL, 0);
        shmctl(id, IPC_RMID, NULL);
        if (t->segment == (void *)-1) t->segment = NULL;
      }
      return;
    default: /* failures, and ranges that hold nothing */
      mmap(NULL, (size_t)1 << 60, both, anonymous, -1, 0);
      munmap((void *)0x500000000000, 5 * page);
      munmap((void *)1, page);
  }
}

static void *run(void *argument) {
  struct thread *t = argument;
  for (long i = 0; i < calls; ++i) {
    step(t);
    const struct timespec pause = {0, 1000 * 1000};
    nanosleep(&pause, NULL);
  }
  return NULL;
}

int main(int count, char **arguments) {
  const int threads = count > 1 ? atoi(arguments[1]) : 1;
  calls = count > 2 ? atol(arguments[2]) : 1000;
  char line[8];
  puts("ready");
  fflush(stdout);
  if (!fgets(line, sizeof line, stdin)) return 1;
  static struct thread t[16];
  pthread_t id[16];
  for (int i = 1; i < threads; ++i) {
    t[i].random = (uint64_t)i * 7919 + 12345;
    pthread_create(&id[i], NULL, run, &t[i]);
  }
  t[0].random = 88172645463325252u;
  sbrk(20 * page);
  sbrk(-7 * page);
  run(&t[0]);
  for (int i = 1; i < threads; ++i) pthread_join(id[i], NULL);
  puts("done");
  fflush(stdout);
  for (;;) pause();
}
